"""Integers on their way into native code, which has no place for those beyond its types."""

from collections.abc import Sized
from typing import Final

from anabranch_wire.errors import InvalidInput

__all__ = ["MOST_UINT32", "MOST_UINT64", "expect_between", "expect_table", "expect_version"]

MOST_UINT32: Final = 2**32 - 1
MOST_UINT64: Final = 2**64 - 1


def expect_between(what: str, number: int, least: int, most: int) -> None:
    """Raise InvalidInput, naming `what`, unless `number` is `least` to `most`."""
    if not least <= number <= most:
        raise InvalidInput(f"{what}: expected {least} to {most}, got {number}")


def expect_table(number: int, tables: Sized) -> None:
    """Raise InvalidInput unless there is a table of that number."""
    if not 0 <= number < len(tables):
        raise InvalidInput(f"there is no table {number}: the store has {len(tables)}")


def expect_version(version: int) -> None:
    """Raise InvalidInput unless it can be a store version."""
    if not 1 <= version < 2**31:
        raise InvalidInput(f"store version {version} cannot be; versions are 1 to 2^31 - 1")
