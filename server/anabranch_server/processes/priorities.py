"""Giving way to the processes and threads that answer requests."""

import os
import threading
from contextlib import suppress
from typing import Final

__all__ = ["become_idle", "give_way"]

_NICE: Final = 10
"""A tenth of a processor that somebody else wants too, all of one that nobody does."""


def give_way(thread: int | None = None) -> None:
    """Let a thread take a tenth of what others take who want the same processor.

    Unlike `become_idle` it cannot starve, so it may hold the interpreter's lock now and then. Where
    the system does not permit it the thread goes on as before.

    Args:
        thread: its number in the system; the calling thread if None.

    Raises:
        ProcessLookupError: there is no such thread.
    """
    tid = threading.get_native_id() if thread is None else thread
    with suppress(PermissionError):
        if os.getpriority(os.PRIO_PROCESS, tid) < _NICE:
            os.setpriority(os.PRIO_PROCESS, tid, _NICE)


def become_idle() -> bool:
    """Run the calling thread only where nobody else wants the processor (SCHED_IDLE).

    Threads that it starts later inherit that. Only for processes, and for threads that spend their
    time in native code without the interpreter's lock: an idle thread that holds the lock and is
    not scheduled stops every other thread of its process.

    Returns:
        False where the system does not permit it; the thread goes on as before.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        return False
    return True
