"""The data plane: doors, catalog, session groups and counters of one process."""

from anabranch_server.worker.single import Worker

__all__ = ["Worker"]
