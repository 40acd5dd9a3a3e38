"""What is freed by the last of those who hold it."""

import threading
from collections.abc import Callable

__all__ = ["Holders"]


class Holders:
    """Counts holders. Any thread.

    Args:
        free: called once, by the last one that lets go.
    """

    def __init__(self, free: Callable[[], None]) -> None:
        self._free = free
        self._count = 0
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Note one more."""
        with self._lock:
            self._count += 1

    def release(self) -> None:
        """Note one less."""
        with self._lock:
            self._count -= 1
            is_last = not self._count
        if is_last:
            self._free()
