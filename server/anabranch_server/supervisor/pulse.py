"""Whether workers are alive: who has not answered a ping for too long."""

from collections.abc import Iterator
from typing import Final

from anabranch_server.supervisor.effects import WorkerId

__all__ = ["PING_S", "Pulse"]

PING_S: Final = 1.0
"""Time between pings."""


class Pulse:
    """Numbers pings and takes note of answers. Times are of one clock, given by the caller."""

    def __init__(self) -> None:
        self._number = 0
        self._last_s: float | None = None
        self._silent_s: dict[WorkerId, float] = {}
        self._answered: dict[WorkerId, int] = {}

    def greet(self, worker: WorkerId) -> None:
        """Begin to watch a worker."""
        self._silent_s[worker] = 0.0
        self._answered[worker] = self._number

    def forget(self, worker: WorkerId) -> None:
        """End to watch a worker."""
        self._silent_s.pop(worker, None)
        self._answered.pop(worker, None)

    def answer(self, worker: WorkerId, number: int) -> None:
        """Note that a worker answered ping `number`."""
        if worker in self._answered:
            self._answered[worker] = max(number, self._answered[worker])
            self._silent_s[worker] = 0.0

    def beat(self, now_s: float) -> int:
        """Return the number of the next ping, to be sent to everyone now.

        Time counts against a worker only while it owes an answer, and one beat at most counts as
        two: when this process itself was held up, answers may lie unread.
        """
        passed_s = 0.0 if self._last_s is None else min(now_s - self._last_s, 2 * PING_S)
        self._last_s = now_s
        for worker, answered in self._answered.items():
            if answered < self._number:
                self._silent_s[worker] += passed_s
        self._number += 1
        return self._number

    def silent(self, limit_s: float) -> Iterator[tuple[WorkerId, float]]:
        """Yield the workers that have owed an answer for more than `limit_s`, and how long."""
        for worker, silent_s in self._silent_s.items():
            if silent_s > limit_s:
                yield worker, silent_s
