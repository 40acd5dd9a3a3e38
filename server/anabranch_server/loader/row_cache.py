"""Segments, item tables and cut graphs in the cache folder; how far making them is."""

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cache_folders import CUT_GRAPHS, ITEMS, SEGMENTS, WEIGHTS
from anabranch_model_store.deltas.weight_files import WeightFiles
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.segment_cache import SegmentCache

__all__ = ["ByteCount", "RowCache", "prune_weights"]

_PAUSE_S: Final = 0.2
"""How often it is said how far an import is."""


class ByteCount:
    """Passes on how many bytes are done, now and then and at the end. For one thread.

    Args:
        say: told the bytes that are done, and of how many.
    """

    def __init__(self, say: Callable[[int, int], None]) -> None:
        self._say = say
        self._last_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Note that `done` bytes of `total` are done."""
        now_s = time.monotonic()
        if done >= total or now_s - self._last_s >= _PAUSE_S:
            self._last_s = now_s
            self._say(done, total)


class RowCache:
    """The segments of a server. Used by one thread.

    Args:
        cache: the server's cache folder.
        reserve: share of a table's rows that changes may add, where model.yaml does not say.
        limit_bytes: kept of segments that nothing serves.
    """

    def __init__(
        self, cache: Path, reserve: float, limit_bytes: int = SEGMENTS.limit_bytes
    ) -> None:
        self._cache = cache
        self._segments = SegmentCache(cache / SEGMENTS.path, limit_bytes)
        self._graphs = BuiltGraphs(cache / CUT_GRAPHS.path, CUT_GRAPHS.limit_bytes)
        self._items = ItemCache(cache / ITEMS.path, ITEMS.limit_bytes)
        self._reserve = reserve

    def prune(self, in_use: Collection[str], since: float | None = None) -> None:
        """Keep the cache small.

        Args:
            in_use: paths of the segments that processes may still be told of, among others.
            since: what was made or used at that time or later stays, seconds since 1970.
        """
        self._segments.prune([Path(path) for path in in_use], since)
        self._graphs.prune([Path(path).parent for path in in_use], since)
        prune_weights(self._cache, in_use, since)

    def settings(self, on_bytes: Callable[[int, int], None]) -> StoreSettings:
        """Return how the rows of a version are prepared."""
        return StoreSettings(self._segments, self._graphs, self._reserve, on_bytes, self._items)


def prune_weights(cache: Path, in_use: Collection[str], since: float | None = None) -> None:
    """Keep small what deltas have brought beside rows.

    Args:
        cache: the server's cache folder.
        in_use: paths of files that processes may still be told of, among others.
        since: what was made or used at that time or later stays, seconds since 1970.
    """
    paths = [Path(path) for path in in_use]
    WeightFiles(cache / WEIGHTS.path, WEIGHTS.limit_bytes).prune(paths, since)
    ItemCache(cache / ITEMS.path, ITEMS.limit_bytes).prune(paths, since)
