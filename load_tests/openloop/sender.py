"""Says of each request when it is due, and how late it says so."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec

from openloop.arrivals import due_times
from openloop.plan import Plan
from openloop.timer import Timer

__all__ = ["Due", "Sender"]

_BURST: Final = 64  # requests begun in one turn of the event loop: answers must be read meanwhile


class Due(msgspec.Struct, frozen=True, gc=False):
    """A request whose time has come.

    Attributes:
        number: from 0.
        due_ns: `time.monotonic_ns`.
        counts: whether it is behind the warm-up.
    """

    number: int
    due_ns: int
    counts: bool


class Sender:
    """Calls `begin` for every request when it is due, in the event loop's thread.

    Args:
        plan: rate, arrivals and end.
        start_ns: the origin of due times, `time.monotonic_ns`.
        begin: is given the request and the nanoseconds since it was due.

    Attributes:
        done: set when no request is due any more.
    """

    def __init__(self, plan: Plan, start_ns: int, begin: Callable[[Due, int], None]) -> None:
        self.done = asyncio.Event()
        self._plan = plan
        self._start_ns = start_ns
        self._begin = begin
        self._times = due_times(plan.arrivals, plan.rate, plan.seed)
        self._next_ns = next(self._times)
        self._number = 0
        self._warm_ns = round(plan.warm_up_s * 1e9)
        self._end_ns = round(plan.seconds * 1e9)
        self._timer: Timer | None = Timer(self._send_due)
        self._timer.set(start_ns + self._next_ns)

    def close(self) -> None:
        """Call `begin` no more."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def _send_due(self) -> None:
        for _ in range(_BURST):
            if self._is_over():
                self.done.set()
                return
            late_ns = time.monotonic_ns() - self._start_ns - self._next_ns
            if late_ns < 0:
                break
            due = Due(self._number, self._start_ns + self._next_ns, self._next_ns >= self._warm_ns)
            self._begin(due, late_ns)
            self._number += 1
            self._next_ns = next(self._times)
        if self._timer is not None:
            self._timer.set(self._start_ns + self._next_ns)

    def _is_over(self) -> bool:
        most = self._plan.max_requests
        return self._next_ns >= self._end_ns or (most is not None and self._number >= most)
