"""Writing golden requests: what a trainer's function yields becomes golden/*.json."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from anabranch_wire.documents import convert
from anabranch_wire.errors import Conflict, InvalidInput, TooLarge
from anabranch_wire.golden import FOLDER, GoldenRequest, encode
from anabranch_wire.manifest import FILE_NAME

__all__ = ["MOST_FILES", "record_golden"]

MOST_FILES: Final = 256
_FIELDS: Final = tuple(GoldenRequest.__struct_fields__)


def record_golden(
    requests: Iterable[object], folder: Path, *, replace: bool = False
) -> tuple[str, ...]:
    """Write golden requests into a version folder that is not published yet.

    All of them are made before the first is written.

    Args:
        requests: mappings with the fields of `GoldenRequest`, or such; values may be NumPy arrays
            and numbers, whatever else has `tolist`, and tables that have `to_dict`.
        folder: of the version; is made where it is not there.
        replace: whether golden requests that are there are removed first.

    Returns:
        Names of the files, relative to the folder.

    Raises:
        InvalidInput: a request is malformed; the message says which, and where.
        Conflict: the version is published, or has golden requests already.
        TooLarge: there are too many.
        OSError: a file cannot be written.
    """
    if (folder / FILE_NAME).exists():
        raise Conflict(
            f"{folder} is published ({FILE_NAME}); golden requests belong into it before that"
        )
    place = folder / FOLDER
    before = sorted(place.glob("*.json"))
    if before and not replace:
        raise Conflict(
            f"{place} has {len(before)} golden requests already; replace them or move on"
        )
    documents: dict[str, bytes] = {}
    for number, request in enumerate(requests):
        if number == MOST_FILES:
            raise TooLarge(f"more than {MOST_FILES} golden requests")
        name = f"{FOLDER}/{number:04}.json"
        documents[name] = _document(request, f"golden request {number}")
    if not documents:
        raise InvalidInput("there are no golden requests")
    place.mkdir(parents=True, exist_ok=True)
    for path in before:
        path.unlink()
    for name, data in documents.items():
        _write(folder / name, data)
    return tuple(documents)


def _document(request: object, what: str) -> bytes:
    if not isinstance(request, Mapping | GoldenRequest):
        raise InvalidInput(
            f"{what}: found {type(request).__name__}; expected a mapping with {', '.join(_FIELDS)}"
        )
    plain = _plain(request, what)
    return encode(convert(plain, GoldenRequest, what), what)


def _plain(value: object, place: str) -> object:
    """Return a value as JSON has it.

    Raises:
        InvalidInput: JSON has nothing like it.
    """
    if isinstance(value, bool | int | float | str) or value is None:
        return _number(value, place)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"{place}: bytes that are no UTF-8") from None
    if isinstance(value, Mapping):
        return {str(key): _plain(one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), place)
    if isinstance(value, list | tuple):
        return [_plain(one, f"{place}[{at}]") for at, one in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.to_builtins(value), place)
    if callable(tolist := getattr(value, "tolist", None)):  # of torch, pandas, jax
        return _plain(tolist(), place)
    if callable(to_dict := getattr(value, "to_dict", None)):  # a table of pandas
        return _plain(to_dict("list"), place)
    raise InvalidInput(f"{place}: found {type(value).__name__}; expected lists, arrays or numbers")


def _number(value: object, place: str) -> object:
    if isinstance(value, float) and not np.isfinite(value):
        raise InvalidInput(f"{place}: {value} is no finite number")
    return value


def _write(path: Path, data: bytes) -> None:
    """Write a file under another name, and give it its own when it is whole."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
