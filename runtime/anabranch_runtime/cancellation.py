"""Asking work on another thread to end early."""

import threading
from collections.abc import Callable

from anabranch_wire.errors import Cancelled

__all__ = ["Cancellation"]


class Cancellation:
    """Whether some work is wanted no more. Any thread may call anything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._calls: list[Callable[[], object]] = []

    def cancel(self) -> None:
        """Ask for the end; once is enough."""
        with self._lock:
            self._is_cancelled = True
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def on_cancel(self, call: Callable[[], object]) -> None:
        """Have `call` called when the end is asked for, by whoever asks; now if it was already.

        Args:
            call: quick, and safe from any thread.
        """
        with self._lock:
            if not self._is_cancelled:
                self._calls.append(call)
                return
        call()

    def check(self) -> None:
        """Return when the work is still wanted.

        Raises:
            Cancelled: it is not.
        """
        if self._is_cancelled:
            raise Cancelled("nobody waits for this any more")
