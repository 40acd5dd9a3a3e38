"""How the kernel treats this process beside those that answer requests."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["be_first_to_go", "become_idle"]

_NICEST: Final = 19

_GOES_FIRST: Final = 800
"""Above every ordinary process, below what the kernel ends without looking."""


def become_idle() -> bool:
    """Run every thread only where the machine has nothing else to do; whether that is granted.

    Threads that are started later inherit it. There is no way back. A nice value changes nothing
    for such threads, but the kernel then counts their time as that of work which gives way, and
    workers see how much of a processor is really taken.
    """
    idle = os.sched_param(0)
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # it has just ended
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, idle)
                os.setpriority(os.PRIO_PROCESS, int(thread), _NICEST)
    except OSError:
        return False
    return True


def be_first_to_go(process: Path = Path("/proc/self")) -> None:
    """Ask the kernel to end this process before others when memory is short, as far as it will."""
    with suppress(OSError):
        (process / "oom_score_adj").write_text(str(_GOES_FIRST))
