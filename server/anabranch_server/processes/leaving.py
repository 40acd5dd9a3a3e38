"""How a process takes SIGTERM and SIGINT before it has begun anything.

Light: until this is imported nobody catches SIGTERM, which the first process of a container would
not even get then.
"""

import os
import signal

__all__ = ["leave_on_signals"]


def leave_on_signals() -> None:
    """End the process on SIGTERM or SIGINT, with the code of an orderly end. Main thread.

    At once, since whatever a handler raises is lost where Python is in the middle of a callback, as
    it is now and then while modules are read.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def _leave(*_: object) -> None:
    os._exit(0)
