"""Visitors of the shop: they ask for rankings all the time, whatever is published meanwhile."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from anabranch_client import Client, ClientOptions, RetryRules
from anabranch_server.demo_requests import MODEL, Recording
from anabranch_wire.errors import AnabranchError

__all__ = ["Answer", "Point", "Visitors"]

_PAUSE_S: Final = 0.01
_TIMEOUT_S: Final = 10.0


class Point(NamedTuple):
    """Where a model is: later points compare greater.

    Attributes:
        version: its number.
        delta: the newest one in it; 0 is the version as published.
    """

    version: int
    delta: int


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One ranking.

    Attributes:
        moment: when it was there, of `time.monotonic`.
        user: index of the recorded user whom it is for.
        point: what answered.
        step: of training, as the answer explains it.
        event_time: of the newest impression that the model learned from, likewise.
        scores: (80,) float32; in order of item id.
    """

    moment: float
    user: int
    point: Point
    step: int | None
    event_time: float | None
    scores: NDArray[np.float32]


class Visitors:
    """A thread that asks for the recorded users in turn, one request after the other.

    Nothing is asked twice: a call that fails counts as failed. Every method may be called by any
    thread.
    """

    def __init__(self, url: str, recording: Recording) -> None:
        """Asks nothing before it is entered as a context manager.

        Args:
            url: of a server that serves the example.
            recording: its users.
        """
        self._url = url
        self._recording = recording
        self._changed = threading.Condition()
        self._answers: list[Answer] = []
        self._failures: Counter[str] = Counter()
        self._first: dict[Point, float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="visitors", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()

    @property
    def answers(self) -> Sequence[Answer]:
        """Those that came until now, in order of time."""
        with self._changed:
            return tuple(self._answers)

    @property
    def failures(self) -> Counter[str]:
        """Kind of error -> how many calls ended in it until now."""
        with self._changed:
            return Counter(self._failures)

    def first_answer(self, point: Point, timeout_s: float) -> float | None:
        """Wait for an answer of `point` or a later one; returns its moment, or None: none came."""

        def found() -> float | None:
            return min((at for seen, at in self._first.items() if seen >= point), default=None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None, timeout_s)
            return found()

    def _ask(self) -> None:
        options = ClientOptions(timeout_s=_TIMEOUT_S, retries=RetryRules(attempts=1))
        with Client(self._url, options=options) as client:
            for number in count():
                if self._ending.wait(_PAUSE_S):
                    return
                try:
                    answer = self._answer(client, number % len(self._recording.users))
                except AnabranchError as error:
                    with self._changed:
                        self._failures[type(error).__name__] += 1
                    continue
                with self._changed:
                    self._answers.append(answer)
                    self._first.setdefault(answer.point, answer.moment)
                    self._changed.notify_all()

    def _answer(self, client: Client, user: int) -> Answer:
        asked = self._recording.ranking(self._recording.users[user])
        ranked = client.rank(MODEL, asked.user, asked.candidates, explain=True)
        moment = time.monotonic()
        scores = np.full(len(self._recording.items), np.nan, np.float32)
        scores[np.asarray(ranked.ids, np.int64)] = ranked.scores
        told = ranked.explanation
        return Answer(
            moment=moment,
            user=user,
            point=Point(int(ranked.version), ranked.delta),
            step=told.step if told else None,
            event_time=told.event_time if told else None,
            scores=scores,
        )
