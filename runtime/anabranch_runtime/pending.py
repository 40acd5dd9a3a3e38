"""The waiting requests of a session group: who is next, who may go together, who is too late.

Plain bookkeeping without a clock, a lock or a thread; its owner passes the time in.
"""

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion

__all__ = ["PendingQueue"]

_LOOK_AHEAD: Final = 32
"""Tickets of a level that a batch passes by at most."""


class PendingQueue:
    """Tickets by priority level, first come first served inside a level.

    Attributes:
        requests: waiting tickets.
        rows: rows of the waiting tickets.
    """

    def __init__(self, levels: int) -> None:
        self._levels: tuple[deque[Ticket], ...] = tuple(deque() for _ in range(levels))
        self._lowest = levels - 1
        self.requests = 0
        self.rows = 0

    def push(self, ticket: Ticket) -> None:
        """Add `ticket` at the end of its level."""
        priority = ticket.request.priority
        # 1 is the highest level; 0 stands for the default, which is the lowest.
        level = min(priority - 1, self._lowest) if priority > 0 else self._lowest
        self._levels[level].append(ticket)
        self.requests += 1
        self.rows += ticket.request.rows

    def take(self, now: float) -> tuple[list[Ticket], list[Ticket]]:
        """Remove the next batch: the first ticket, and those behind it that may go with it.

        A ticket that may not (another version, another shape, too many rows) keeps its place. It is
        passed by in favour of later ones, but only until its turn as the first comes.

        Args:
            now: `time.monotonic()`.

        Returns:
            The tickets to compute together, all of one version and of fitting shapes, and those
            that are cancelled or past their deadline. Both empty: nothing waits.
        """
        batch: list[Ticket] = []
        late: list[Ticket] = []
        version: ServedVersion | None = None
        room = 1
        for level in self._levels:
            passed: list[Ticket] = []
            while level and room > 0 and len(passed) < _LOOK_AHEAD:
                ticket = level.popleft()
                request = ticket.request
                if ticket.cancelled or request.deadline <= now:
                    late.append(ticket)
                elif version is None:
                    batch.append(ticket)
                    version = ticket.version
                    room = version.max_rows - request.rows if version.mergeable else 0
                elif (
                    ticket.version is version
                    and request.rows <= room
                    and (version.uniform or _fit(batch[0].request.inputs, request.inputs))
                ):
                    batch.append(ticket)
                    room -= request.rows
                else:
                    passed.append(ticket)
                    continue
                self.requests -= 1
                self.rows -= request.rows
            if passed:
                level.extendleft(reversed(passed))
        return batch, late

    def fill_time(self, delay_s: float, now: float) -> float:
        """Seconds that a batch may still wait to fill; 0 or less: take it now.

        A request whose deadline would pass meanwhile is not made to wait.

        Args:
            delay_s: longest wait after the oldest ticket arrived.
            now: `time.monotonic()`.
        """
        firsts = [level[0] for level in self._levels if level]
        if not firsts:
            return 0.0
        version = firsts[0].version
        oldest = min([ticket.submitted for ticket in firsts])
        if (
            not version.mergeable
            or self.rows >= version.max_rows
            or any([ticket.request.deadline <= oldest + delay_s for ticket in firsts])
        ):
            return 0.0
        return oldest + delay_s - now

    def drain(self) -> list[Ticket]:
        """Remove and return everything."""
        tickets = [ticket for level in self._levels for ticket in level]
        for level in self._levels:
            level.clear()
        self.requests = 0
        self.rows = 0
        return tickets


def _fit(first: tuple[NDArray[np.generic], ...], other: tuple[NDArray[np.generic], ...]) -> bool:
    """Whether two requests agree on every axis but the rows (axis 0)."""
    return all([one.shape[1:] == two.shape[1:] for one, two in zip(first, other, strict=True)])
