"""Giving way to the processes and threads that answer requests."""

import os

__all__ = ["become_idle"]


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
