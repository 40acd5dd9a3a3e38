"""Whether a version fits into memory, before anything of it is loaded."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch_wire.errors import TooLarge

__all__ = ["Demand", "available_bytes", "check_fits", "must_give_way", "times_out_of_memory"]

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


def check_fits(needed: int, max_bytes: int, available: int | None) -> None:
    """Check that weights of `needed` bytes can be loaded at all.

    Sessions need memory beside the weights, so this is a lower bound: what it refuses cannot fit.

    Args:
        needed: bytes of the model's files.
        max_bytes: `memory.max_bytes` of serving.yaml; 0 is no bound.
        available: what the machine has left; None where that is not known.

    Raises:
        TooLarge: it does not fit; the message has the numbers.
    """
    if max_bytes and needed > max_bytes:
        raise TooLarge(f"the model has {needed} bytes; memory.max_bytes allows {max_bytes}")
    if available is not None and needed > available:
        raise TooLarge(f"the model has {needed} bytes; the machine has {available} left")


@dataclass(frozen=True, slots=True)
class Demand:
    """What loading a version takes, in bytes of weights in each worker.

    Attributes:
        new: of the version.
        held: of the model's versions that are in memory.
        kept: of those among them that nobody asks for, which may make room.
        workers: processes that hold a copy each.
    """

    new: int
    held: int
    kept: int
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
    if _fits(demand, demand.kept, max_bytes, available):
        return not _fits(demand, 0, max_bytes, available)
    served = demand.held - demand.kept
    workers = "1 worker" if demand.workers == 1 else f"each of {demand.workers} workers"
    needs = f"the version needs {demand.new} bytes in {workers}"
    if max_bytes and demand.workers * (served + demand.new) > max_bytes:
        raise TooLarge(
            f"{needs} beside {served} of what is served; memory.max_bytes allows {max_bytes} in all"
        )
    raise TooLarge(f"{needs} beside what is served; the machine has {available} left")


def _fits(demand: Demand, dropped: int, max_bytes: int, available: int | None) -> bool:
    """Whether the version fits once `dropped` bytes have gone from each worker."""
    held = demand.held - dropped
    if max_bytes and demand.workers * (held + demand.new) > max_bytes:
        return False
    return available is None or demand.workers * demand.new <= available + demand.workers * dropped


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
