"""What the keepers of all models work with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from anabranch_server.processes.loader_messages import (
    Applied,
    ApplyDeltas,
    Found,
    LoadVersion,
    Progress,
)
from anabranch_server.supervisor.holds import Records
from anabranch_server.supervisor.keeper_counts import ReloadCounts
from anabranch_server.supervisor.switching import Switching

__all__ = ["Surroundings", "VersionLoader"]


class VersionLoader(Protocol):
    """Has versions looked at; see `LoaderLink`."""

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        """Return what was found, or raise why it cannot be served.

        Raises:
            OutOfRoom: it needs more memory than `request` allows.
            AnabranchError: something else is wrong with it.
        """
        ...

    async def apply(self, request: ApplyDeltas, on_progress: Callable[[Progress], None]) -> Applied:
        """Return what deltas make of a version, as far as they could be applied.

        Raises:
            AnabranchError: it could not even be begun.
        """
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every model's keeper works with.

    Attributes:
        switching: makes states current.
        loader: looks at versions.
        records: what survives a restart.
        counts: of what happened.
        launch: name of the running launcher.
        workers: worker processes.
        cores: executors of a worker where a deployment names no number.
        available_bytes: memory that the machine has left; None where it is not known.
        is_serving: whether requests are being answered, so that loading must not disturb.
        gap_grace_s: how long a missing delta is waited for before that is a failure.
        in_use: graph files of all models that workers may be told of; filled in by `Keeping`.
    """

    switching: Switching
    loader: VersionLoader
    records: Records
    counts: ReloadCounts
    launch: str
    workers: int
    cores: int
    available_bytes: Callable[[], int | None]
    is_serving: Callable[[], bool]
    gap_grace_s: float = 60.0
    in_use: Callable[[], tuple[str, ...]] = tuple
