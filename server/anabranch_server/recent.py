"""A bounded memory of what was asked for lately.

Two generations: what is asked for lives in the young one. When that is full it becomes the old one,
and what was in the old one and was not asked for meanwhile goes. So what belongs to versions that
have gone does not stay, and what is asked for all the time is never lost, however much else comes.
"""

from typing import Generic, TypeVar

__all__ = ["RecentlyUsed"]

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """At most `2 * size` entries. Any thread may use it: at worst an entry is made once more.

    Args:
        size: entries of a generation.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._young.keys() | self._old.keys())

    def get(self, key: K) -> V | None:
        """Return what was put under `key`; None where that is nothing, or is forgotten."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Remember a value."""
        if len(self._young) >= self._size:
            self._old, self._young = self._young, {}
        self._young[key] = value
