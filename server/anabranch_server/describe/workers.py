"""Worker processes as the admin API and the status page show them."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["WorkerState", "WorkerView"]

WorkerState = Literal["starting", "serving", "draining", "dead"]
"""What a worker does now."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker process.

    Attributes:
        index: number of the worker, from 0.
        pid: its process.
        state: what it does now.
        started: seconds since 1970.
        restarts: how often it was started again.
        snapshots: model -> snapshot that it serves, such as `42+17`.
    """

    index: int
    pid: int
    state: WorkerState
    started: float
    restarts: int
    snapshots: dict[str, str]
