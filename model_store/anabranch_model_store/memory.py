"""Whether a version fits into memory, before anything of it is loaded."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch_wire.errors import TooLarge

__all__ = ["available_bytes", "check_fits"]

_AVAILABLE: Final = re.compile(r"^MemAvailable:\s+([0-9]+) kB$", re.MULTILINE)
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
