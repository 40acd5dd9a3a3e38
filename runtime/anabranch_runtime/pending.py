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


class _Level:
    """The waiting requests of one priority.

    Attributes:
        tickets: first come, first served.
        rows: of them.
        work_s: seconds of an executor that they are expected to take.
    """

    __slots__ = ("rows", "tickets", "work_s")

    def __init__(self) -> None:
        self.tickets: deque[Ticket] = deque()
        self.rows = 0
        self.work_s = 0.0


class PendingQueue:
    """Tickets by priority level, first come first served inside a level.

    Attributes:
        requests: waiting tickets.
        rows: rows of the waiting tickets.
        total_s: seconds of an executor that they are expected to take.
    """

    def __init__(self, levels: int) -> None:
        self._levels: tuple[_Level, ...] = tuple(_Level() for _ in range(levels))
        self.requests = 0
        self.rows = 0
        self.total_s = 0.0

    def push(self, ticket: Ticket) -> None:
        """Add `ticket` at the end of its level."""
        rows = ticket.request.rows
        level = self._levels[self._index(ticket.request.priority)]
        level.tickets.append(ticket)
        cost_s = ticket.cost_s = ticket.version.pace.share_s(rows)
        level.rows += rows
        level.work_s += cost_s
        self.requests += 1
        self.rows += rows
        self.total_s += cost_s

    def take(self, now: float) -> tuple[list[Ticket], list[Ticket]]:
        """Remove the next batch: the first ticket, and those behind it that may go with it.

        A ticket that may not (another version, another shape, too many rows) keeps its place. It is
        passed by in favour of later ones, but only until its turn as the first comes.

        A batch is no longer than its members have time. A first ticket that cannot be finished in
        time any more is not begun; neither is one that only a wasteful batch would finish while
        many wait behind it, since those would then be late in their turn.

        Args:
            now: `time.monotonic()`.

        Returns:
            The tickets to compute together, all of one version and of fitting shapes, and those
            that are cancelled or too late. Both empty: nothing waits.
        """
        batch: list[Ticket] = []
        late: list[Ticket] = []
        version: ServedVersion | None = None
        taken = 0
        room = 1.0
        relaxed = now  # whoever has as much time does not limit the batch
        for level in self._levels:
            passed: list[Ticket] = []
            waiting = level.tickets
            removed = removed_rows = 0
            removed_s = 0.0
            while waiting and room > 0 and len(passed) < _LOOK_AHEAD:
                ticket = waiting.popleft()
                request = ticket.request
                rows = request.rows
                if ticket.cancelled or request.deadline <= now:
                    late.append(ticket)
                elif version is None:
                    first = ticket.version
                    pace = first.pace
                    limit = pace.rows_within(request.deadline - now, now)
                    most = (
                        min(first.max_rows, self.rows - removed_rows) if first.mergeable else rows
                    )
                    if limit < rows or not pace.is_worth(limit, max(most, rows)):
                        late.append(ticket)
                    else:
                        batch.append(ticket)
                        version = first
                        taken = rows
                        relaxed = now + pace.run_s(first.max_rows)
                        room = min(first.max_rows, limit) - rows if first.mergeable else 0.0
                elif (
                    ticket.version is version
                    and rows <= room
                    and (version.uniform or _fit(batch[0].request.inputs, request.inputs))
                    and (
                        request.deadline >= relaxed
                        or version.pace.rows_within(request.deadline - now, now) >= taken + rows
                    )
                ):
                    batch.append(ticket)
                    taken += rows
                    room -= rows
                    if request.deadline < relaxed:
                        limit = version.pace.rows_within(request.deadline - now, now)
                        room = min(room, limit - taken)
                else:
                    passed.append(ticket)
                    continue
                removed += 1
                removed_rows += rows
                removed_s += ticket.cost_s
            if passed:
                waiting.extendleft(reversed(passed))
            if removed:
                self._removed(level, removed, removed_rows, removed_s)
        return batch, late

    def fill_time(self, delay_s: float, now: float) -> float:
        """Seconds that a batch may still wait to fill; 0 or less: take it now.

        A request whose deadline would pass meanwhile is not made to wait.

        Args:
            delay_s: longest wait after the oldest ticket arrived.
            now: `time.monotonic()`.
        """
        firsts = [level.tickets[0] for level in self._levels if level.tickets]
        if not firsts:
            return 0.0
        version = firsts[0].version
        oldest = min([ticket.submitted for ticket in firsts])
        latest = oldest + delay_s + version.pace.run_s(version.max_rows)
        if (
            not version.mergeable
            or self.rows >= version.max_rows
            or any([ticket.request.deadline <= latest for ticket in firsts])
        ):
            return 0.0
        return oldest + delay_s - now

    # --- how much waits -------------------------------------------------------------------------

    def work_s(self, priority: int | None) -> float:
        """Seconds of an executor before a request of `priority` that comes now; None: of all."""
        levels = self._levels
        if priority is None:
            return self.total_s
        levels = levels[: self._index(priority) + 1]
        return sum([level.work_s for level in levels])

    def below(self, priority: int) -> tuple[int, int]:
        """Requests and rows that wait at lower levels than `priority`."""
        levels = self._levels[self._index(priority) + 1 :]
        return sum([len(level.tickets) for level in levels]), sum([level.rows for level in levels])

    def newest_below(self, priority: int) -> tuple[int, Ticket] | None:
        """Return the newest ticket of the lowest level below `priority`, and that level."""
        lowest = self._index(priority)
        for index in range(len(self._levels) - 1, lowest, -1):
            if tickets := self._levels[index].tickets:
                return index, tickets[-1]
        return None

    def remove_newest(self, index: int) -> Ticket:
        """Remove the newest ticket of a level."""
        level = self._levels[index]
        ticket = level.tickets.pop()
        self._removed(level, 1, ticket.request.rows, ticket.cost_s)
        return ticket

    # --- everything -----------------------------------------------------------------------------

    def set_levels(self, levels: int) -> None:
        """Change the number of levels; what waits keeps its order inside each."""
        if levels == len(self._levels):
            return
        tickets = sorted(self.drain(), key=lambda ticket: ticket.submitted)
        self._levels = tuple(_Level() for _ in range(levels))
        for ticket in tickets:
            self.push(ticket)

    def drain(self) -> list[Ticket]:
        """Remove and return everything."""
        tickets = [ticket for level in self._levels for ticket in level.tickets]
        self._levels = tuple(_Level() for _ in self._levels)
        self.requests = 0
        self.rows = 0
        self.total_s = 0.0
        return tickets

    def _removed(self, level: _Level, requests: int, rows: int, work_s: float) -> None:
        """Count tickets that were taken off a level as gone."""
        self.requests -= requests
        self.rows -= rows
        level.rows -= rows
        level.work_s -= work_s
        self.total_s -= work_s
        # Sums of floats drift; what is empty starts anew.
        if not level.tickets:
            level.work_s = 0.0
        if not self.requests:
            self.total_s = 0.0

    def _index(self, priority: int) -> int:
        """1 is the highest level; 0 stands for the default, which is the lowest."""
        lowest = len(self._levels) - 1
        return min(priority - 1, lowest) if priority > 0 else lowest


def _fit(first: tuple[NDArray[np.generic], ...], other: tuple[NDArray[np.generic], ...]) -> bool:
    """Whether two requests agree on every axis but the rows (axis 0)."""
    return all([one.shape[1:] == two.shape[1:] for one, two in zip(first, other, strict=True)])
