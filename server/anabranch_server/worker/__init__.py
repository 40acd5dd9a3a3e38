"""The process that answers requests: doors, catalog, session groups, counters."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_server.worker.single import Worker

__all__ = ["Worker"]


def __getattr__(name: str) -> object:
    """Import the parts of the single-process server only where they are asked for."""
    if name == "Worker":
        from anabranch_server.worker.single import Worker

        return Worker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
