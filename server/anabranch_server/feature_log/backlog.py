"""What waits to be written: a queue with bounds, where taking part never means waiting."""

import threading
from collections import deque

from anabranch_server.feature_log.entries import Entry

__all__ = ["Backlog"]


class Backlog:
    """Entries from any thread to one that takes them out.

    Args:
        max_entries: that wait.
        max_bytes: of what they refer to; a single entry may be larger.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: deque[tuple[Entry, int]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, entry: Entry) -> bool:
        """Add `entry` at the end, and return whether there was room. Never waits for the other."""
        size = entry.bytes
        with self._changed:
            full = len(self._entries) >= self._max_entries
            if full or (self._entries and self._bytes + size > self._max_bytes) or self._is_closed:
                return False
            self._entries.append((entry, size))
            self._bytes += size
            self._changed.notify()
            return True

    def take(self, wait_s: float) -> Entry | None:
        """Return the oldest entry; None where none came in time, or none will come."""
        with self._changed:
            if not self._entries and not self._is_closed:
                self._changed.wait(wait_s)
            if not self._entries:
                return None
            entry, size = self._entries.popleft()
            self._bytes -= size
            return entry

    def close(self) -> None:
        """Take no further entries; those that wait can still be taken out."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether it is closed and empty."""
        with self._changed:
            return self._is_closed and not self._entries
