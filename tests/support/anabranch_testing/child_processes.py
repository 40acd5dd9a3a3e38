"""Processes that tests start, and that outlive no test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import Any, Final

__all__ = ["mortal"]

_PATIENCE_S: Final = 180.0


@contextmanager
def mortal(process: Popen[Any]) -> Iterator[Popen[Any]]:
    """Kill a process when the block ends, or when that takes too long: a test fails then.

    A test that waits for a process that never ends would hold up all others.
    """
    timer = threading.Timer(_PATIENCE_S, process.kill)
    timer.start()
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        timer.cancel()
