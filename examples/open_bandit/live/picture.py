"""A picture of the replay: scores, freshness, and how long each delta took."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_server.demo_requests import Recording
from open_bandit.live.replay import Published
from open_bandit.live.visitors import Answer

__all__ = ["draw"]

_ITEMS: Final = 5
_DELTA: Final = "#c9ced4"
_VERSION: Final = "#000000"
_DPI: Final = 80


def draw(
    path: Path, recording: Recording, answers: Sequence[Answer], published: Sequence[Published]
) -> None:
    """Write a PNG.

    Args:
        path: where to.
        recording: the users who were asked for.
        answers: what they got, in order of time; at least one.
        published: what was published meanwhile; at least one delta.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import dates, pyplot

    begin = answers[0].moment
    user = recording.users.index(next(user for user in recording.users if user.affinity))
    of_user = [answer for answer in answers if answer.user == user]
    moments = [answer.moment - begin for answer in of_user]
    scores = np.stack([answer.scores for answer in of_user]) * 100
    figure, (upper, middle, lower) = pyplot.subplots(
        3, 1, figsize=(10, 8), sharex=True, height_ratios=(3, 2, 1.3)
    )
    named: set[str] = set()
    for each in published:
        kind, colour, width = (
            ("delta", _DELTA, 0.8) if each.point.delta else ("version", _VERSION, 1.4)
        )
        label = None if kind in named else kind
        named.add(kind)
        upper.axvline(each.moment - begin, color=colour, lw=width, label=label)
    for item in _spread(scores[-1] - scores[0]):
        upper.step(moments, scores[:, item], where="post", lw=1.3, label=f"item {item}")
    upper.set_ylabel("served score, %")
    upper.set_title("scores of items for one user, as the server answered them", fontsize=10)
    upper.legend(fontsize=7, ncols=4)

    dated = [answer for answer in answers if answer.event_time is not None]
    middle.step(
        [answer.moment - begin for answer in dated],
        [_date(answer.event_time) for answer in dated],
        where="post", lw=1.3, label="in the answers (explain)",
    )  # fmt: skip
    middle.plot(
        [each.moment - begin for each in published],
        [_date(each.hour.newest) for each in published],
        ".", ms=4, color=_VERSION, label="published",
    )  # fmt: skip
    middle.yaxis.set_major_formatter(dates.DateFormatter("%d %b %H:%M"))
    middle.set_title("newest impression that the model learned from", fontsize=10)
    middle.legend(fontsize=7)

    for is_delta, colour in ((True, "#8c959f"), (False, _VERSION)):
        seen = [p for p in published if p.seconds is not None and bool(p.point.delta) is is_delta]
        heights = [each.seconds for each in seen if each.seconds is not None]
        lower.bar([each.moment - begin for each in seen], heights, width=0.5, color=colour)
    lower.set_title("from publishing to the first answer, seconds (black: versions)", fontsize=10)
    lower.set_xlabel("seconds of the replay")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)


def _spread(changes: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[int]:
    """Items from the one that fell most to the one that rose most, at even distances."""
    order = np.argsort(changes, kind="stable")
    places = np.linspace(0, len(order) - 1, _ITEMS).round().astype(int)
    return [int(order[place]) for place in places]


def _date(seconds: float | None) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds or 0.0, datetime.UTC)
