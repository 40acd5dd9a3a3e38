"""How long workers may hold up a switch: with an answer they owe, with what they still read."""

import asyncio
from collections.abc import Callable
from typing import Final

from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.leases import Leases
from anabranch_server.supervisor.participants import Workers

__all__ = ["LeaseCheck", "Patience"]

_LEASE_CHECKS: Final = 4
"""How often within `stall_s` leases are looked at."""


class Patience:
    """One timer for each worker that owes an answer. Belongs to the event loop.

    Args:
        timeout_s: how long a worker may take for an answer.
        is_owing: whether a worker owes one now.
        on_expired: is told of a worker whose time is over.
    """

    def __init__(
        self,
        timeout_s: float,
        is_owing: Callable[[WorkerId], bool],
        on_expired: Callable[[WorkerId], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._is_owing = is_owing
        self._on_expired = on_expired
        self._loop = asyncio.get_running_loop()
        self._timers: dict[WorkerId, asyncio.TimerHandle] = {}

    def expect(self, worker: WorkerId) -> None:
        """Give a worker that owes an answer its time, unless that is running already."""
        is_owing = self._is_owing(worker)
        if is_owing and worker not in self._timers:
            self._timers[worker] = self._loop.call_later(self._timeout_s, self._expire, worker)
        elif not is_owing and (timer := self._timers.pop(worker, None)):
            timer.cancel()

    def renew(self, worker: WorkerId) -> None:
        """Begin a worker's time anew: it answered. Many answers may be owed, one by one."""
        if timer := self._timers.pop(worker, None):
            timer.cancel()
        self.expect(worker)

    def close(self) -> None:
        """End every timer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _expire(self, worker: WorkerId) -> None:
        del self._timers[worker]
        self._on_expired(worker)
        self.expect(worker)


class LeaseCheck:
    """Ends workers that read what is no longer current for too long; looks from its making on.

    Belongs to the event loop.

    Args:
        leases: what workers may still read.
        stall_s: how long a worker may keep what is no longer current.
        pool: ends workers.
    """

    def __init__(self, leases: Leases, stall_s: float, pool: Workers) -> None:
        self._leases = leases
        self._stall_s = stall_s
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._look()

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._stall_s / _LEASE_CHECKS, self._look)
        for overdue in list(self._leases.overdue(self._loop.time(), self._stall_s)):
            why = (
                f"it has read epoch {overdue.epoch} of model {overdue.model} "
                f"for {overdue.age_s:.0f} s longer than it was current"
            )
            self._pool.kill(overdue.worker, "stale_lease", why)
