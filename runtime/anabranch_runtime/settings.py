"""Settings of a session group, as the deployment gave them; validated once, then frozen."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BatchSettings", "GroupSettings", "QueueSettings", "Select"]

Select = Literal["least_loaded", "round_robin", "mod"]
"""How a request finds its executor: one queue before all of them, a queue before each one by turns,
or a queue before each one by routing key."""


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How requests meet in batches.

    Attributes:
        merge: whether an executor takes what queued up while it was busy.
        max_rows: rows of a merged batch at most; None = found at load.
        max_delay_s: how long an idle executor waits for more after the first request.
        split_rows: a request with at least twice as many rows is cut over idle executors; None =
            found at load, 0 = never.
    """

    merge: bool = True
    max_rows: int | None = None
    max_delay_s: float = 0.0
    split_rows: int | None = None

    def __post_init__(self) -> None:
        if self.max_rows is not None and self.max_rows < 1:
            raise ValueError(f"batching.max_rows {self.max_rows}: expected at least 1")
        if self.max_delay_s < 0:
            raise ValueError("batching.max_delay_us: expected at least 0")
        if self.split_rows is not None and self.split_rows < 0:
            raise ValueError(f"batching.split_rows {self.split_rows}: expected at least 0")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How much may wait, and for how long.

    Attributes:
        max_requests: waiting requests at most.
        max_rows: waiting rows at most.
        default_timeout_s: for requests that name no deadline.
        max_timeout_s: longest deadline granted.
        priority_levels: number of levels; larger priorities are clamped to the lowest level.
    """

    max_requests: int = 1024
    max_rows: int = 65_536
    default_timeout_s: float = 1.0
    max_timeout_s: float = 60.0
    priority_levels: int = 2

    def __post_init__(self) -> None:
        for name in ("max_requests", "max_rows", "default_timeout_s", "max_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"queue.{name}: expected more than 0")
        if self.priority_levels < 1:
            raise ValueError("queue.priority_levels: expected at least 1")


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Everything a `SessionGroup` is told.

    Attributes:
        executors: number of executors, at least 1.
        batching: merging and splitting.
        queue: bounds and deadlines.
        select: how a request finds its executor.
        cpusets: processors that each executor's thread keeps to, one set for each; empty pins none.
        max_repeated_bytes: of the user inputs of one request, once repeated for its rows.
    """

    executors: int = 1
    batching: BatchSettings = field(default_factory=BatchSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    select: Select = "least_loaded"
    cpusets: tuple[frozenset[int], ...] = ()
    max_repeated_bytes: int = 268_435_456

    def __post_init__(self) -> None:
        if self.executors < 1:
            raise ValueError(f"executors {self.executors}: expected at least 1")
        if self.cpusets and len(self.cpusets) != self.executors:
            raise ValueError(
                f"executors.cpusets: {len(self.cpusets)} sets for {self.executors} executors"
            )
        if not all(self.cpusets):
            raise ValueError("executors.cpusets: expected at least one processor in each set")
        if self.max_repeated_bytes < 0:
            raise ValueError("max_repeated_bytes: expected at least 0")
