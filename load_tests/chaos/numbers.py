"""One number for each snapshot of a model, which all of its rows and weights are."""

from typing import Final

__all__ = ["DELTAS_AT_MOST", "number_of"]

DELTAS_AT_MOST: Final = 10_000
"""Of a version; float32 tells 1,677 such versions apart."""


def number_of(version: int, delta: int) -> int:
    """Return the number of a snapshot; later ones have higher numbers."""
    return version * DELTAS_AT_MOST + delta
