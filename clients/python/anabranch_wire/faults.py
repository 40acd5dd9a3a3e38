"""Where and why plain data is not what its type says, in words for the person who wrote it.

msgspec stops at the first fault too, but its paths lose the keys of mappings and it knows no
suggestions. So data that it refused is walked once more beside its type, trying each part on its
own; a part that converts is skipped. Nothing here decides what is valid: msgspec does.
"""

import difflib
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import (
    Annotated,
    Final,
    Literal,
    NamedTuple,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from anabranch_wire.errors import InvalidInput

__all__ = ["first_fault", "known_formats"]

StructType = type[msgspec.Struct]

_SHOWN = 80  # characters of a foreign value that a message repeats
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
}

_YAML: Final[Mapping[type, Callable[[object], str]]] = {
    bool: lambda value: str(value).lower(),
    type(None): lambda _: "null",
    list: lambda _: "a list",
    dict: lambda _: "a mapping",
}
"""How messages show values that are no word, as whoever wrote them would."""


class _Part(NamedTuple):
    step: str  # what the path grows by: `.name`, `[0]` or `['key']`
    value: object
    hint: object


def first_fault(data: object, hint: object) -> tuple[str, str]:
    """Return path and reason of the first fault of `data`, which msgspec refused as a `hint`.

    The path looks like `tables['a.b'].missing.value[0]` and is empty for the document itself.
    """
    path, reason = _find(data, hint, "") or ("", "invalid")
    return path.removeprefix("."), reason


def known_formats(kind: object) -> list[int]:
    """Return the format numbers that a struct's field `format: Literal[...]` admits, or []."""
    if not _is_struct(kind):
        return []
    return [number for number in get_args(_hints(kind).get("format")) if type(number) is int]


def _find(data: object, hint: object, path: str) -> tuple[str, str] | None:
    try:
        msgspec.convert(data, hint)
    except (msgspec.ValidationError, InvalidInput) as error:
        reason = _plain(error)
    else:
        return None
    members = _members(hint)
    parts = _elements(data, members)
    struct = _struct_for(data, members)
    if struct is not None and isinstance(data, Mapping):
        if isinstance(struct, str):  # the name of a tag that no struct of the union has
            return f"{path}.{struct}", _wrong_tag(data[struct], members)
        unknown = _unknown_key(data, struct)
        if unknown is not None:
            return path + unknown[0], unknown[1]
        parts = _fields(data, struct)
    for part in parts:
        fault = _find(part.value, part.hint, path + part.step)
        if fault is not None:
            return fault
    return path, _wrong_word(data, members) or reason


def _struct_for(data: object, members: Sequence[object]) -> StructType | str | None:
    """The struct that a mapping is read as; the name of the tag if that decides, but is unknown."""
    structs = [member for member in members if _is_struct(member)]
    if not (structs and isinstance(data, Mapping)):
        return None
    tag_field = structs[0].__struct_config__.tag_field
    if tag_field is None or tag_field not in data:
        return structs[0] if len(structs) == 1 else None
    by_tag = [s for s in structs if s.__struct_config__.tag == data[tag_field]]
    return by_tag[0] if by_tag else tag_field


def _fields(data: Mapping[object, object], struct: StructType) -> Iterator[_Part]:
    """Yield the keys of `data` that are fields, in the order they stand."""
    hints = _hints(struct)
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    for key, value in data.items():
        if isinstance(key, str) and key in names:
            yield _Part(f".{key}", value, hints[names[key]])


def _elements(data: object, members: Sequence[object]) -> Iterator[_Part]:
    """Yield the elements of a list, tuple or mapping."""
    if isinstance(data, Mapping):
        for member in members:
            if get_origin(member) in (dict, Mapping):
                key_hint, value_hint = get_args(member)
                for key, value in data.items():
                    step = f"[{repr(key)[:_SHOWN]}]"
                    yield _Part(step, key, key_hint)
                    yield _Part(step, value, value_hint)
    elif isinstance(data, list | tuple):
        for member in members:
            if get_origin(member) in (list, tuple, Sequence):
                inner = get_args(member)
                if get_origin(member) is not tuple or inner[-1] is Ellipsis:
                    inner = (inner[0],) * len(data)
                for index, (value, hint) in enumerate(zip(data, inner, strict=False)):
                    yield _Part(f"[{index}]", value, hint)


def _unknown_key(data: Mapping[object, object], struct: StructType) -> tuple[str, str] | None:
    config = struct.__struct_config__
    known = [*struct.__struct_encode_fields__]
    if config.tag_field is not None:
        known.insert(0, config.tag_field)
    for key in data:
        if not isinstance(key, str):
            return "", f"key {repr(key)[:_SHOWN]}: expected a string"
        if config.forbid_unknown_fields and key not in known:
            return f".{key[:_SHOWN]}", f"unknown key{_expected(key, known)}"
    return None


def _wrong_tag(found: object, members: Sequence[object]) -> str:
    tags = [str(m.__struct_config__.tag) for m in members if _is_struct(m)]
    return f"found {repr(found)[:_SHOWN]}{_expected(str(found), tags)}"


def _wrong_word(data: object, members: Sequence[object]) -> str | None:
    """A message for a value where only some words may stand; None where that is not its fault.

    What may stand there beside the words is named too; a value of such a kind has another fault.
    """
    words = [
        word
        for member in members
        if get_origin(member) is Literal
        for word in get_args(member)
        if isinstance(word, str)
    ]
    kinds = {kind for member in members if (kind := _kind(member))}
    if not words or _kind(type(data)) in kinds:
        return None
    if "bool" in kinds:
        words += ("true", "false")
    others = [word for kind, word in _WORDS.items() if kind in kinds - {"bool"}]
    found = _YAML.get(type(data), repr)(data)[:_SHOWN]
    close = data if isinstance(data, str) else ""
    return f"found {found}{_expected(close, words)}{''.join(f' or {one}' for one in others)}"


def _kind(member: object) -> str | None:
    """The key of `_WORDS` for a type; None for a set of words and for nothing."""
    if _is_struct(member) or get_origin(member) in (dict, Mapping) or member is dict:
        return "object"
    if get_origin(member) in (list, tuple, Sequence) or member in (list, tuple):
        return "array"
    return next((kind.__name__ for kind in (bool, int, float, str) if member is kind), None)


def _expected(found: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(found[:_SHOWN], known, n=1)
    meant = f", did you mean {close[0]!r}?" if close else ";"
    return f"{meant} expected {'one of ' if len(known) > 1 else ''}{', '.join(known)}"


def _plain(error: Exception) -> str:
    """The reason in an error, without msgspec's own path and type names."""
    if not isinstance(error, msgspec.ValidationError):
        return str(error)
    reason = str(error).split(" - at `")[0]
    if reason.startswith("Object missing required field"):
        return reason.replace("Object missing required field", "missing key").replace("`", "'")
    reason = re.sub("`([^`]*)`", lambda names: _in_words(names[1]), reason)
    return reason[:1].lower() + reason[1:] if reason.startswith(("Expected", "Invalid")) else reason


def _in_words(type_names: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in type_names.split(" | "))


def _members(hint: object) -> list[object]:
    """The alternatives of a type: annotations taken off, unions opened."""
    if get_origin(hint) is Annotated:
        return _members(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return [inner for member in get_args(hint) for inner in _members(member)]
    return [hint]


def _is_struct(kind: object) -> TypeGuard[StructType]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def _hints(struct: StructType) -> dict[str, object]:
    return get_type_hints(struct, include_extras=True)
