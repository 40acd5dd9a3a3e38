"""The standard `process_*` figures of one process, read from /proc."""

import os
import resource
from collections.abc import Mapping
from pathlib import Path

__all__ = ["process_figures"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def process_figures(proc: Path = Path("/proc"), pid: int | None = None) -> Mapping[str, float]:
    """Return metric name -> value for a process; empty where /proc does not tell.

    Args:
        proc: where the process file system is mounted.
        pid: the process; None for this one.
    """
    folder = proc / str(os.getpid() if pid is None else pid)
    try:
        # The name in parentheses may hold anything: fields are counted from the last one.
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        boot_s = _boot_time_s(proc / "stat")
        descriptors = len(os.listdir(folder / "fd"))
    except (OSError, ValueError, IndexError):
        return {}
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "process_cpu_seconds_total": (int(stat[11]) + int(stat[12])) / _TICKS_PER_S,
        "process_resident_memory_bytes": int(stat[21]) * _PAGE_BYTES,
        "process_virtual_memory_bytes": int(stat[20]),
        "process_start_time_seconds": boot_s + int(stat[19]) / _TICKS_PER_S,
        "process_open_fds": descriptors,
        "process_max_fds": soft_limit,
        "process_threads": int(stat[17]),
    }


def _boot_time_s(stat: Path) -> float:
    for line in stat.read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    raise ValueError("no boot time")
