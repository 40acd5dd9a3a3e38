"""The lanes of one group: which one a request waits in, how much waits in all, who makes room.

Plain bookkeeping without a clock or a lock: its owner guards it.
"""

from collections.abc import Sequence

from anabranch_runtime.executor import Executor
from anabranch_runtime.lanes import Lane
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.routing import place_of
from anabranch_runtime.settings import QueueSettings, Select

__all__ = ["Lanes"]


class Lanes:
    """One lane for all executors, or one for each of them.

    Args:
        executors: of the group.
        select: how a request finds its executor.
        levels: of priority.

    Attributes:
        every: the lanes.
        single: the only one, where there is one.
    """

    def __init__(self, executors: Sequence[Executor], select: Select, levels: int) -> None:
        if select == "least_loaded" or len(executors) == 1:
            self.every: tuple[Lane, ...] = (Lane(executors, levels),)
        else:
            self.every = tuple(Lane((executor,), levels) for executor in executors)
        self.single = self.every[0] if len(self.every) == 1 else None
        self._select = select
        self._turn = 0

    def choose(self, request: ScoreRequest) -> Lane:
        """Return the lane that `request` waits in."""
        lanes = self.every
        if self.single is not None:
            return self.single
        if self._select == "round_robin":
            self._turn = (self._turn + 1) % len(lanes)
            return lanes[self._turn]
        if request.routing_key is not None:
            return lanes[place_of(request.routing_key, len(lanes))]
        return min(lanes, key=Lane.load)

    def home(self, executor: Executor) -> Lane:
        """Return the lane that an executor takes from."""
        return self.every[executor.index] if self.single is None else self.single

    def resting(self, ticket: Ticket, lane: Lane) -> Sequence[Lane]:
        """Return a lane for each part of a request that is worth cutting; else none.

        Each part has an idle executor of its lane to itself.

        Args:
            ticket: the request.
            lane: where it would wait; an executor of it is idle.
        """
        smallest = ticket.version.split_rows
        rows = ticket.request.rows
        if not smallest or rows < 2 * smallest or self._select == "mod":
            return ()
        if self.single is not None:
            resting = [lane] * len(lane.idle)
        else:
            resting = [one for one in self.every if one.idle and not one.pending.requests]
        resting = resting[: rows // smallest]
        return resting if len(resting) > 1 else ()

    # --- bounds ---------------------------------------------------------------------------------

    def depth(self) -> tuple[int, int]:
        """Return waiting requests and rows."""
        if self.single is not None:
            return self.single.pending.requests, self.single.pending.rows
        return (
            sum([lane.pending.requests for lane in self.every]),
            sum([lane.pending.rows for lane in self.every]),
        )

    def is_full(self, request: ScoreRequest, queue: QueueSettings) -> bool:
        """Whether `request` does not fit beside what waits."""
        requests, rows = self.depth()
        return requests >= queue.max_requests or (
            requests > 0 and rows + request.rows > queue.max_rows
        )

    def can_displace(self, request: ScoreRequest, queue: QueueSettings) -> bool:
        """Whether lower priorities hold enough of a full queue to make room for `request`."""
        if request.priority <= 0:  # the default, which is the lowest
            return False
        requests, rows = self.depth()
        for lane in self.every:
            requests_below, rows_below = lane.pending.below(request.priority)
            requests -= requests_below
            rows -= rows_below
        return requests < queue.max_requests and (
            requests == 0 or rows + request.rows <= queue.max_rows
        )

    def displace(self, request: ScoreRequest, queue: QueueSettings) -> list[Ticket]:
        """Make room where `can_displace` says so: the newest of the lowest priority go."""
        displaced: list[Ticket] = []
        while self.is_full(request, queue):
            places = [(lane.pending.newest_below(request.priority), lane) for lane in self.every]
            (level, _), lane = max(
                [(place, lane) for place, lane in places if place is not None],
                key=lambda found: (found[0][0], found[0][1].submitted),
            )
            displaced.append(lane.pending.remove_newest(level))
        return displaced

    # --- everything -----------------------------------------------------------------------------

    def set_levels(self, levels: int) -> None:
        """Change the number of priority levels."""
        for lane in self.every:
            lane.pending.set_levels(levels)

    def drain(self) -> list[Ticket]:
        """Remove and return everything that waits."""
        return [ticket for lane in self.every for ticket in lane.pending.drain()]
