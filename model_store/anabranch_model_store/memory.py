"""Whether a version fits into memory, before anything of it is loaded."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch_wire.errors import TooLarge

__all__ = [
    "Demand",
    "Footprint",
    "OutOfRoom",
    "available_bytes",
    "check_fits",
    "must_give_way",
    "times_out_of_memory",
]

_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+([0-9]+) kB$", re.MULTILINE)
_KILLED: Final = re.compile(r"^oom_kill ([0-9]+)$", re.MULTILINE)
_CACHED: Final = re.compile(r"^(?:in)?active_file ([0-9]+)$", re.MULTILINE)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process may still take; None where the system does not say.

    That is what the kernel calls available, or what a control group of version 2 leaves.

    Args:
        root: of the file systems `proc` and `sys`.
    """
    found: list[int] = []
    with suppress(OSError):  # not a Linux kernel, or hidden
        match = _AVAILABLE.search((root / "proc/meminfo").read_text())
        if match is not None:
            found.append(int(match[1]) * 1024)
    with suppress(OSError, ValueError):  # no such control group, or "max": no limit
        found.append(_left_in_group(root / "sys/fs/cgroup"))
    return min(found, default=None)


def _left_in_group(group: Path) -> int:
    """Bytes that the control group leaves; cached files count as free, since they give way."""
    limit = int((group / "memory.max").read_text())
    used = int((group / "memory.current").read_text())
    cached = sum(map(int, _CACHED.findall((group / "memory.stat").read_text())))
    return max(0, limit - max(0, used - cached))


class OutOfRoom(TooLarge):
    """The machine has less memory left than a version takes; it may fit once others have gone.

    Attributes:
        tables: bytes of its tables and of its item table, once for all workers.
    """

    def __init__(self, message: str, tables: int) -> None:
        super().__init__(message)
        self.tables = tables


def check_fits(graph: int, tables: int, max_bytes: int, available: int | None) -> None:
    """Check that a version can be loaded at all.

    Sessions need memory beside the weights, so this is a lower bound: what it refuses cannot fit.

    Args:
        graph: bytes of the graph's files.
        tables: bytes of the tables in memory, and of the item table that workers map.
        max_bytes: `memory.max_bytes` of serving.yaml; 0 is no bound.
        available: what the machine has left; None where that is not known.

    Raises:
        OutOfRoom: the machine has too little left; the message has the numbers.
        TooLarge: it passes `max_bytes`; the message has the numbers.
    """
    needed = graph + tables
    if max_bytes and needed > max_bytes:
        raise TooLarge(f"the model has {needed} bytes; memory.max_bytes allows {max_bytes}")
    if available is not None and needed > available:
        text = f"the model has {needed} bytes; the machine has {available} left"
        raise OutOfRoom(text, tables)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that versions take in memory, at least.

    Attributes:
        each: of weights, in each worker.
        shared: of tables and item tables, once for all workers.
    """

    each: int
    shared: int = 0

    def total(self, workers: int) -> int:
        """Return what that is on a machine with so many workers."""
        return workers * self.each + self.shared


@dataclass(frozen=True, slots=True)
class Demand:
    """What loading a version takes.

    Attributes:
        new: of the version.
        served: of the model's versions that are in memory and asked for.
        kept: of the others in memory, which may make room.
        workers: processes that hold a copy of the weights each.
    """

    new: Footprint
    served: Footprint
    kept: Footprint
    workers: int


def must_give_way(demand: Demand, max_bytes: int, available: int | None) -> bool:
    """Return whether unserved versions have to go before a version is loaded.

    As `check_fits` this is a lower bound: what is refused cannot fit.

    Args:
        demand: what it takes.
        max_bytes: `memory.max_bytes` of serving.yaml, for all workers together; 0 is no bound.
        available: what the machine has left; None where that is not known.

    Raises:
        TooLarge: it does not fit even without them; the message has the numbers.
    """
    new, served, kept = (
        one.total(demand.workers) for one in (demand.new, demand.served, demand.kept)
    )
    limit = max_bytes or float("inf")
    left = float("inf") if available is None else available
    if served + new <= limit and new <= left + kept:
        return served + kept + new > limit or new > left
    workers = "1 worker" if demand.workers == 1 else f"each of {demand.workers} workers"
    tables = f" and {demand.new.shared} for its tables" if demand.new.shared else ""
    others = f" and {demand.served.shared}" if demand.served.shared else ""
    needs = f"the version needs {demand.new.each} bytes in {workers}{tables}"
    if served + new > limit:
        raise TooLarge(
            f"{needs} beside {demand.served.each}{others} of what is served; memory.max_bytes "
            f"allows {max_bytes} in all"
        )
    raise TooLarge(f"{needs} beside what is served; the machine has {available} left")


def times_out_of_memory(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has ended for lack of memory, as far as it tells.

    Args:
        root: of the file systems `proc` and `sys`.
    """
    times = 0
    for name in ("proc/vmstat", "sys/fs/cgroup/memory.events"):
        with suppress(OSError):  # not a Linux kernel, hidden, or no such control group
            times += sum(map(int, _KILLED.findall((root / name).read_text())))
    return times
