"""Vocabularies of features: lists in model.yaml, or text files of the version, line by line.

Workers get a short list with their plan. A long one goes into the cache folder once, in the one
form that `VocabularyPlan` names; every worker reads it there, and so needs no repository.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.containment import read_inside
from anabranch_model_store.model_yaml import Vocabulary
from anabranch_model_store.version_files import VersionFiles
from anabranch_runtime.ranking.plans import VocabularyPlan
from anabranch_wire.errors import Conflict, InvalidInput

__all__ = ["Values", "parse_vocabulary", "vocabulary_plan", "vocabulary_values"]

Values = tuple[int | str, ...]

_MAX_BYTES: Final = 512 * 1024 * 1024
_INLINE_BYTES: Final = 16 * 1024
"""Lists up to here travel with the plan of a version, which is sent whenever its model changes."""

_FORMAT: Final = "vocabulary 1"
_FILE: Final = "vocabulary.txt"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_SHOWN: Final = 40
_LEAST_INT64: Final = -(2**63)
_MOST_INT64: Final = 2**63 - 1


def vocabulary_values(
    vocabulary: Vocabulary, kind: Literal["int64", "string"], files: VersionFiles, place: str
) -> Values:
    """Return the values of a vocabulary, found to be different from each other.

    Args:
        vocabulary: of a feature.
        kind: of its raw values.
        files: of the version.
        place: how messages name it.

    Raises:
        NotFound: the version has no such file.
        InvalidInput: a line is malformed or there twice, or ids are no 64-bit integers.
        TooLarge, Unavailable: the file cannot be read.
        Conflict: it changed since it was verified.
    """
    if vocabulary.file is None:
        values = vocabulary.values or ()
        _check_range([value for value in values if isinstance(value, int)], f"{place}.values")
    else:
        files.path(vocabulary.file)  # only what belongs to the version
        data = read_inside(files.folder, vocabulary.file, _MAX_BYTES)
        digest = files.digests.get(vocabulary.file)
        if digest is not None and hashlib.sha256(data).hexdigest() != digest:
            raise Conflict(f"{vocabulary.file} changed while the version was read")
        values = parse_vocabulary(data, kind, vocabulary.file)
    _check_range([vocabulary.first_id + len(values) - 1], f"{place}.first_id")
    if isinstance(vocabulary.unknown, int):
        _check_range([vocabulary.unknown], f"{place}.unknown")
    return values


def parse_vocabulary(data: bytes, kind: Literal["int64", "string"], name: str) -> Values:
    """Return the values of a text file: one a line, ended by a line feed with or without a return.

    An empty line is the empty string; the last line needs no end.

    Args:
        data: of the file.
        kind: of its values.
        name: of the file, for messages.

    Raises:
        InvalidInput: it is not UTF-8, or a line is malformed or there twice; names the line.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{name}, line {number}: expected UTF-8: {error.reason}") from None
    if text.startswith("\ufeff"):
        raise InvalidInput(f"{name}, line 1: found a byte order mark; expected UTF-8 without one")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise InvalidInput(f"{name}: found no line; expected one value a line")
    lines = [line.removesuffix("\r") for line in lines]
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        earlier = first.setdefault(line, number)
        if earlier != number:
            raise InvalidInput(
                f"{name}, line {number}: {line[:_SHOWN]!r} is on line {earlier} already"
            )
    return tuple(lines) if kind == "string" else _integers(lines, name)


def vocabulary_plan(
    vocabulary: Vocabulary, values: Values, cache: BuiltGraphs | None
) -> VocabularyPlan:
    """Return what workers are told of a vocabulary.

    Args:
        vocabulary: of a feature.
        values: of it.
        cache: where a long list is kept; None has every list told.

    Raises:
        Unavailable: the cache folder cannot be written.
    """
    unknown = vocabulary.unknown if isinstance(vocabulary.unknown, int) else None
    data = "".join(f"{value}\n" for value in values).encode()
    texts = [value for value in values if isinstance(value, str)]
    are_lines = not any("\n" in text or text.endswith("\r") for text in texts)
    if cache is None or len(data) <= _INLINE_BYTES or not are_lines:
        return VocabularyPlan(values, None, vocabulary.first_id, unknown)

    def write(folder: Path) -> None:
        (folder / _FILE).write_bytes(data)

    folder = cache.get(f"{_FORMAT}\n{hashlib.sha256(data).hexdigest()}", write)
    return VocabularyPlan((), str(folder / _FILE), vocabulary.first_id, unknown)


def _integers(lines: Sequence[str], name: str) -> tuple[int, ...]:
    for number, line in enumerate(lines, 1):
        if len(line) > _SHOWN or not _INTEGER.fullmatch(line):
            raise InvalidInput(
                f"{name}, line {number}: expected an integer as -12, got {line[:_SHOWN]!r}"
            )
        _check_range([int(line)], f"{name}, line {number}")
    return tuple(map(int, lines))


def _check_range(numbers: Sequence[int], place: str) -> None:
    for number in numbers:
        if not _LEAST_INT64 <= number <= _MOST_INT64:
            raise InvalidInput(f"{place}: expected 64-bit integers, got {str(number)[:_SHOWN]}")
