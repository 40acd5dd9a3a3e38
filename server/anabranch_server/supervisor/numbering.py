"""Numbers that no two supervisors of one launcher give out: of epochs, and of generations."""

from typing import Final

__all__ = ["first_number", "incarnation_of"]

_BITS: Final = 32
"""Bits that one supervisor counts in."""


def first_number(incarnation: int) -> int:
    """Return the number before the first one of a supervisor; `incarnation` counts from 1."""
    return (incarnation - 1) << _BITS


def incarnation_of(number: int) -> int:
    """Return which supervisor gave out a number."""
    return (number >> _BITS) + 1
