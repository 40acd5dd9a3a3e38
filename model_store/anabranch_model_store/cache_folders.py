"""Folders of a server's cache folder that are kept small by size: which there are, and how small.

Whoever writes into one and whoever prunes it mean the same folder, and the same limit.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["CUT_GRAPHS", "GRAPHS", "ITEMS", "RUNS", "SEGMENTS", "WEIGHTS", "CacheFolder"]


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """One of them.

    Attributes:
        path: in the cache folder.
        limit_bytes: kept of what nothing serves, for rollbacks and restarts.
    """

    path: str
    limit_bytes: int


SEGMENTS: Final = CacheFolder("segments", 16 << 30)
"""Rows of tables, as stores map them."""

ITEMS: Final = CacheFolder("items", 4 << 30)
"""Item tables."""

CUT_GRAPHS: Final = CacheFolder("cut", 1 << 30)
"""Graphs whose lookups were cut out."""

GRAPHS: Final = CacheFolder("graphs", 1 << 30)
"""Graphs as workers build them: optimised, or with the weights of deltas."""

WEIGHTS: Final = CacheFolder("deltas/weights", 1 << 30)
"""Weights that deltas have brought."""

RUNS: Final = CacheFolder("deltas/runs", 8 << 30)
"""Rows that deltas have brought."""
