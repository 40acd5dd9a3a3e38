"""YAML files as typed documents: every refusal names the line, the path and what was expected."""

from typing import Final, TypeVar

from anabranch_model_store.yaml_text import Place, parse_yaml
from anabranch_wire.documents import Document, convert
from anabranch_wire.errors import InvalidInput
from anabranch_wire.faults import first_fault

__all__ = ["read_yaml"]

_SHOWN: Final = 80

D = TypeVar("D", bound=Document)


def read_yaml(text: bytes, kind: type[D], what: str) -> D:
    """Return a YAML document as a `kind`; an empty one holds the defaults.

    Args:
        text: UTF-8, at most 1 MiB.
        kind: the type of the whole document.
        what: how messages name the document, as in `"model.yaml"`.

    Raises:
        TooLarge: a limit on size, depth or number of values was passed.
        Unsupported: the document's `format` is newer than this release knows.
        InvalidInput: not YAML, or not a `kind`.
    """
    data, place = parse_yaml(text, what)
    if data is None:
        data = {}
    try:
        return convert(data, kind, what)
    except InvalidInput:
        path, reason = first_fault(data, kind)
        line = _line_of(place, "." + (path or reason.split(": ")[0]))
        found = f"{path}: {reason}" if path else reason
        raise InvalidInput(f"{what}: line {line}: {found}") from None


def _line_of(place: Place, path: str) -> int:
    """Line of what `path` names, followed as far as it can be: `.tables['a.b'].missing.value[0]`.

    The forms of a step, and where they are cut, are those of `anabranch_wire.faults`.
    """
    for step, inner in place.parts.items():
        if isinstance(step, int):
            forms: tuple[str, ...] = (f"[{step}]",)
        else:
            forms = (f".{step[:_SHOWN]}", f"[{repr(step)[:_SHOWN]}]")
        for form in forms:
            rest = path.removeprefix(form)
            if path.startswith(form) and (not rest or rest[0] in ".["):
                return _line_of(inner, rest)
    return place.line
