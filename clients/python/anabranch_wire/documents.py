"""Strict reading of documents that people and programs write: manifests, plans, settings.

Plain data (what a JSON or YAML parser returns) becomes a typed value, or one `InvalidInput` that
names the place, what stood there, what was expected and, for a misspelt key or word, what was
probably meant. The types are msgspec structs derived from `Document`: they are frozen, refuse
unknown keys, and may check themselves in `__post_init__` by raising `ValueError` or `InvalidInput`.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.faults import first_fault, known_formats

__all__ = ["Document", "convert", "decode_json", "encode_json"]

T = TypeVar("T")


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything read from a document: immutable, closed to unknown keys.

    A field `format: Literal[1]` makes a document of a higher format `Unsupported`, whatever else
    it holds. Derive with `frozen=True, kw_only=True` (the rest is inherited).
    """


def convert(data: object, kind: type[T], what: str) -> T:
    """Return plain data as a `kind`.

    Args:
        data: None, bool, int, float, str, and lists and mappings of them.
        kind: a `Document`, or any type msgspec converts to.
        what: how messages name the document, as in `"model.yaml"`.

    Raises:
        Unsupported: the document's `format` is newer than `kind` knows.
        InvalidInput: the data is not a `kind`; the message starts with `what` and the path.
    """
    _check_format(data, kind, what)
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, InvalidInput):
        path, reason = first_fault(data, kind)
        raise InvalidInput(f"{what}: {path}: {reason}" if path else f"{what}: {reason}") from None


def decode_json(data: bytes, kind: type[T], what: str) -> T:
    """Return a JSON document as a `kind`.

    Raises:
        Unsupported: the document's `format` is newer than `kind` knows.
        InvalidInput: `data` is not JSON in UTF-8, or not a `kind`.
    """
    try:
        plain: object = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{what}: not JSON: {error}") from None
    except RecursionError:
        raise InvalidInput(f"{what}: nested too deeply") from None
    return convert(plain, kind, what)


def encode_json(document: Document, what: str) -> bytes:
    """Return `document` as indented JSON with a final newline, readable by `decode_json`.

    msgspec does not check field types when a struct is made in Python, so the result is read back
    once: nothing is ever written that its own reader would refuse.

    Raises:
        InvalidInput: `document` holds values that its kind forbids.
    """
    try:
        data = msgspec.json.encode(document)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{what}: {error}") from None
    decode_json(data, type(document), what)
    return msgspec.json.format(data, indent=2) + b"\n"


def _check_format(data: object, kind: object, what: str) -> None:
    found = data.get("format") if isinstance(data, Mapping) else None
    known = known_formats(kind)
    if known and type(found) is int and found > max(known):
        raise Unsupported(
            f"{what}: format {found} is newer than this release reads (up to {max(known)}): "
            "upgrade anabranch"
        )
