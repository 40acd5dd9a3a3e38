"""How the kernel treats this process beside those that answer requests."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch_server.processes.loader_messages import PRIORITIES, Priority
from anabranch_server.processes.priorities import give_way

__all__ = ["Standing", "be_first_to_go"]

_NICEST: Final = 19

_GOES_FIRST: Final = 800
"""Above every ordinary process, below what the kernel ends without looking."""


class Standing:
    """How much of a processor this process gets that others want too. One thread.

    Every thread gets less of it, and threads that are started later inherit that. There is no way
    back up.
    """

    def __init__(self) -> None:
        self._priority: Priority = "normal"

    def fall_to(self, priority: Priority) -> None:
        """Fall to a priority, where that is not above the present one and the system permits it."""
        if PRIORITIES.index(priority) >= PRIORITIES.index(self._priority):
            return
        with suppress(OSError):
            for thread in map(int, os.listdir("/proc/self/task")):
                with suppress(ProcessLookupError):  # it has just ended
                    _lower(thread, priority)
            self._priority = priority


def _lower(thread: int, priority: Priority) -> None:
    if priority == "low":
        give_way(thread)
    else:
        # A nice value changes nothing for such threads, but the kernel then counts their time as
        # that of work which gives way, and workers see how much of a processor is really taken.
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, thread, _NICEST)


def be_first_to_go(process: Path = Path("/proc/self")) -> None:
    """Ask the kernel to end this process before others when memory is short, as far as it will."""
    with suppress(OSError):
        (process / "oom_score_adj").write_text(str(_GOES_FIRST))
