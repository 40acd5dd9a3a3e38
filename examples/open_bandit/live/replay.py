"""The replay: learn an hour, publish it, wait for the first answer that knows it, go on.

Every hour is scored before it is learned (progressive validation: Blum, Kalai and Langford,
"Beating the hold-out", COLT 1999), by the model as it is then and by the one of before.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_server.demo_requests import Recording
from open_bandit.live.hours import Hour
from open_bandit.live.releases import Releases
from open_bandit.live.training import Trainer
from open_bandit.live.visitors import Point, Visitors
from open_bandit.quality import log_loss

__all__ = ["NextHour", "Published", "Replay", "scores_of_users"]

_SEEN_S: Final = 20.0
"""How long an answer is waited for that knows what was published."""


@dataclass(frozen=True, slots=True)
class NextHour:
    """Log-loss on the hour after the one that was learned.

    Attributes:
        before: of the model that did not know the hour in between.
        after: of the one that does: that hour itself is still unknown to it.
        frozen: of the model as it was before the replay.
        impressions: in it.
    """

    before: float
    after: float
    frozen: float
    impressions: int


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """A delta, or a version at the end of a day.

    Attributes:
        hour: the newest one in it.
        next_hour: for deltas, where an hour follows.
        rows: changed rows; for versions 0.
        point: what was published.
        step: of training.
        moment: when publishing began, of `time.monotonic`.
        seconds: from then to the first answer that knew it; None: none came.
        scores: (users, 80) float32; what the trainer says of the recorded users.
    """

    hour: Hour
    next_hour: NextHour | None
    rows: int
    point: Point
    step: int
    moment: float
    seconds: float | None
    scores: NDArray[np.float32]


def scores_of_users(trainer: Trainer, recording: Recording) -> NDArray[np.float32]:
    """(users, 80) float32; scores of all items for the recorded users."""
    return np.stack([trainer.score(recording.inputs(user)) for user in recording.users])


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """What a replay needs. For one thread.

    Attributes:
        frozen: the model before, which is never trained.
        trainer: what is trained.
        releases: where it is published.
        visitors: who ask meanwhile.
        recording: their requests.
    """

    frozen: Trainer
    trainer: Trainer
    releases: Releases
    visitors: Visitors
    recording: Recording

    def run(self, log: Sequence[Hour], pace_s: float) -> Iterator[Published]:
        """Replay hours; yields what was published, as soon as an answer knew it.

        Args:
            log: the hours in order.
            pace_s: from hour to hour; one that takes longer is followed at once.
        """
        due = time.monotonic()
        for hour, following in zip_longest(log, log[1:]):
            yield self._learn(hour, following)
            if following is None or following.day != hour.day:
                yield self._end_day(hour)
            due = max(due + pace_s, time.monotonic())
            if following is not None:
                time.sleep(max(due - time.monotonic(), 0.0))

    def _learn(self, hour: Hour, following: Hour | None) -> Published:
        before = None if following is None else _loss(self.trainer, following)
        changed = self.trainer.step(hour.inputs, hour.clicks)
        next_hour = None
        if following is not None and before is not None:
            after, frozen = _loss(self.trainer, following), _loss(self.frozen, following)
            next_hour = NextHour(before, after, frozen, len(following))
        scores = scores_of_users(self.trainer, self.recording)
        moment = time.monotonic()
        point = self.releases.publish_changes(self.trainer, changed, hour.newest)
        seconds = self._seen(point, moment)
        step = self.trainer.steps
        return Published(hour, next_hour, changed.row_count, point, step, moment, seconds, scores)

    def _end_day(self, hour: Hour) -> Published:
        scores = scores_of_users(self.trainer, self.recording)
        moment = time.monotonic()
        point = self.releases.publish_all(self.trainer, hour.newest)
        seconds = self._seen(point, moment)
        return Published(hour, None, 0, point, self.trainer.steps, moment, seconds, scores)

    def _seen(self, point: Point, moment: float) -> float | None:
        first = self.visitors.first_answer(point, _SEEN_S)
        return None if first is None else first - moment


def _loss(trainer: Trainer, hour: Hour) -> float:
    return log_loss(hour.clicks, trainer.score(hour.inputs))
