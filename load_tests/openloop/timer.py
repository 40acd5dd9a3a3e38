"""A clock that wakes an event loop at a given nanosecond: its own timers count milliseconds."""

import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from typing import Final

__all__ = ["Timer"]

_ABSOLUTE: Final = 1  # TFD_TIMER_ABSTIME


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class Timer:
    """A timerfd in an event loop; everything happens in the loop's thread.

    Args:
        on_due: called when the time has come, once for each `set`.
    """

    def __init__(self, on_due: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        # Python has os.timerfd_create from 3.13 on.
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._fd: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, flags)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._setting = _Setting()
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def set(self, at_ns: int) -> None:
        """Wake at `at_ns` of `time.monotonic_ns`, at once when that is past."""
        value = self._setting.value
        value.seconds, value.nanoseconds = divmod(max(at_ns, 1), 1_000_000_000)
        setting = ctypes.byref(self._setting)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, setting, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Wake nobody any more."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        os.read(self._fd, 8)
        self._on_due()
