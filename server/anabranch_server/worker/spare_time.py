"""Whether a thread of the lowest priority gets anywhere, before it begins and while it runs.

Python code at that priority holds the interpreter lock like any other. Where the processors are
busy, such a thread is not scheduled while it does, and every thread of its process waits: a loop
that ticks every 2 ms was held up for 3 s beside a build, by two other processes that computed.
"""

import asyncio
import os
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

__all__ = ["ThreadClock", "idle_seconds", "spare_processors"]

_LOOK_S: Final = 0.1
_STAT: Final = Path("/proc/stat")
_SPARE_FIELDS: Final = (2, 4, 5)
"""Of a processor's line: `nice`, which is work that gives way, `idle` and `iowait`."""


async def spare_processors() -> float:
    """Look for a moment how many of the processors that this process may use have nothing to do.

    Where the system does not tell, all of them.
    """
    loop = asyncio.get_running_loop()
    cpus = os.sched_getaffinity(0)
    begun_s = loop.time()
    try:
        before_s = idle_seconds(_STAT.read_text(), cpus)
        await asyncio.sleep(_LOOK_S)
        return (idle_seconds(_STAT.read_text(), cpus) - before_s) / (loop.time() - begun_s)
    except (OSError, ValueError):
        return float(len(cpus))


def idle_seconds(stat: str, cpus: Collection[int]) -> float:
    """Return how long these processors had nothing urgent to do since the machine started.

    Args:
        stat: text of /proc/stat.
        cpus: numbers of the processors.

    Raises:
        ValueError: it is no such text.
    """
    names = {f"cpu{number}" for number in cpus}
    lines = [fields for line in stat.splitlines() if (fields := line.split())[:1]]
    ticks = [
        sum([int(fields[field]) for field in _SPARE_FIELDS])
        for fields in lines
        if fields[0] in names
    ]
    if not ticks:
        raise ValueError("no processor is listed")
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


class ThreadClock:
    """Processor time of one thread, read from another."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._used_s = 0.0

    def begin(self) -> None:
        """Measure the calling thread."""
        self._clock = time.pthread_getcpuclockid(threading.get_ident())

    def used_s(self) -> float:
        """Return the seconds it has used; 0.0 before it began, the last value once it ended."""
        if self._clock is not None:
            try:
                self._used_s = time.clock_gettime(self._clock)
            except OSError:
                self._clock = None
        return self._used_s
