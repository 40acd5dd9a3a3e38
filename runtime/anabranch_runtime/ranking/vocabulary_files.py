"""Vocabularies in files: a value a line, all of them different; the line number makes the id."""

from pathlib import Path
from typing import Final

from anabranch_runtime.ranking.plans import ValueType
from anabranch_wire.errors import Corrupt, Unavailable

__all__ = ["read_vocabulary"]

_INT64: Final = range(-(1 << 63), 1 << 63)


def read_vocabulary(file: str, kind: ValueType) -> tuple[int, ...] | tuple[str, ...]:
    """Return the values of a file in UTF-8, whose lines end with a line feed alone.

    Args:
        file: path of it.
        kind: of its values; those of `int64` are in decimal.

    Raises:
        Corrupt: a line is no such value, or one that was there before.
        Unavailable: the file cannot be read.
    """
    name = Path(file).name
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise Unavailable(f"vocabulary {name!r} cannot be read: {error.strerror}") from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise Corrupt(f"vocabulary {name!r}, line {at}: expected UTF-8") from error
    lines = text.removesuffix("\n").split("\n") if text else []
    if not lines:
        raise Corrupt(f"vocabulary {name!r}: expected at least one line")
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if line.endswith("\r"):
            raise Corrupt(f"vocabulary {name!r}, line {number}: ends with a carriage return")
        first = seen.setdefault(line, number)
        if first != number:
            raise Corrupt(f"vocabulary {name!r}, line {number}: the same value as line {first}")
    if kind != "int64":
        return tuple(lines)
    return tuple(_integer(name, number, line) for number, line in enumerate(lines, 1))


def _integer(name: str, number: int, line: str) -> int:
    digits = line.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 20:
        value = int(line)
        # One text for each integer, so that no two lines are the same one.
        if value in _INT64 and str(value) == line:
            return value
    raise Corrupt(f"vocabulary {name!r}, line {number}: expected an int64, got {line[:40]!r}")
