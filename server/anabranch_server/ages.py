"""Lengths of time in few characters, for people."""

from typing import Final

__all__ = ["age"]

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def age(seconds: float) -> str:
    """Return a length of time as `42 s`, `3 min`, `5 h` or `9 d`; what is to come is `0 s`."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
