"""What the replay prints: a line for each publication, a table of days, and what that says."""

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from open_bandit.live.proof import Proof
from open_bandit.live.replay import Published

__all__ = ["HEADING", "days", "line", "verdict"]

HEADING: Final = (
    "hour learned (UTC)  shown  clicks  log-loss on the next hour   rows  published  seconds to\n"
    "                                     before        after      changed            an answer"
)


def line(published: Published) -> str:
    """Return one line on a delta or a version."""
    hour = published.hour
    version, delta = published.point
    seconds = "   none" if published.seconds is None else f"{published.seconds:7.2f}"
    if not delta:
        all_weights = f"{hour.day:%d %b} is over: all weights, with golden requests"
        return f"{all_weights:<67}{f'{version}':>9}   {seconds}"
    losses = f"{'':>23}"
    if (then := published.next_hour) is not None:
        losses = f"{then.before:.6f} -> {then.after:.6f}".rjust(23)
    return (
        f"{hour.begin:%d %b %H:%M}       {len(hour):5}  {hour.clicks.sum():6.0f}   {losses}"
        f"  {published.rows:6}   {f'{version}+{delta}':>9}   {seconds}"
    )


def days(published: Sequence[Published]) -> Iterator[str]:
    """Yield a table with a line for each day, and one for all."""
    yield "day     shown  clicks  deltas   rows   log-loss on next hours    seconds to an answer"
    yield "                                       trained      frozen       median     slowest"
    for day, part in groupby(published, key=lambda each: each.hour.day):
        yield _day(f"{day:%d %b}", list(part))
    yield _day("all   ", list(published))


def _day(name: str, published: Sequence[Published]) -> str:
    deltas = [each for each in published if each.point.delta]
    seconds = [each.seconds if each.seconds is not None else np.inf for each in deltas]
    nexts = [each.next_hour for each in deltas if each.next_hour is not None]
    shown = sum(each.impressions for each in nexts)
    trained, frozen = (
        sum(loss * each.impressions for loss, each in pairs) / max(shown, 1)
        for pairs in (
            [(each.after, each) for each in nexts],
            [(each.frozen, each) for each in nexts],
        )
    )
    return (
        f"{name} {sum(len(each.hour) for each in deltas):6}"
        f"  {sum(float(each.hour.clicks.sum()) for each in deltas):6.0f}  {len(deltas):6}"
        f"  {sum(each.rows for each in deltas):6}   {trained:9.6f}   {frozen:9.6f}"
        f"    {np.median(seconds):9.2f}   {max(seconds):9.2f}"
    )


def verdict(published: Sequence[Published], proof: Proof, failures: Counter[str]) -> Iterator[str]:
    """Yield what the replay shows, and what it does not."""
    failed = ", ".join(f"{count} {kind}" for kind, count in failures.items()) or "0"
    yield f"{proof.answers + failures.total():,} rankings of 80 items meanwhile, {failed} failed"
    same = "those" if proof.holds else "NOT those"
    yield (
        f"scores, step and newest impression are {same} of the trainer at the delta that each "
        f"answer names:\nlargest difference {proof.difference:.0e}, {proof.misdated} wrong dates, "
        f"{proof.backwards} answers of an earlier delta than the answer before"
    )
    newest = datetime.datetime.fromtimestamp(published[-1].hour.newest, datetime.UTC)
    yield f"newest impression in the model: {newest:%d %B %Y, %H:%M:%S} UTC"
    clicks = sum(float(each.hour.clicks.sum()) for each in published if each.point.delta)
    yield (
        f"{clicks:.0f} clicks cannot tell a better model from a worse one, and the learning rate "
        "was picked with them in view.\nWhat moves is mostly the click rate, which is lower on "
        "these days than in training: this shows the way,\nnot the quality."
    )
