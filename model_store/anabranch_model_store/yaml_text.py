"""Reading YAML as plain data that remembers its lines; safe on any bytes.

The events of PyYAML's safe parser are put together here, not by its constructor, so that:

- scalars follow the core schema of YAML 1.2 (section 10.3.2 of its specification): `off`, `no` and
  dates are text, `1e-5` is a number;
- aliases, anchors, tags, duplicate keys, a second document and non-finite numbers are refused;
- keys are always text;
- bytes, nesting and nodes are limited before anything is built from them.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Final

import yaml

from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["MAX_BYTES", "Place", "parse_yaml"]

MAX_BYTES: Final = 1_048_576
_MAX_DEPTH: Final = 32
_MAX_NODES: Final = 200_000
_MAX_DIGITS: Final = 40
_SHOWN: Final = 80

_PARSER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE: Final = frozenset(("true", "True", "TRUE"))
_FALSE: Final = frozenset(("false", "False", "FALSE"))
_NUMBER: Final = re.compile(
    r"(?P<base>0o[0-7]+|0x[0-9a-fA-F]+)"
    r"|(?P<integer>[-+]?[0-9]+)"
    r"|(?P<real>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<endless>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)


@dataclass(slots=True)
class Place:
    """Where a value stands.

    Attributes:
        line: counted from 1; of the key, for the value of a key.
        parts: places of the values inside, by key or by index.
    """

    line: int
    parts: dict[str | int, "Place"] = field(default_factory=dict)


@dataclass(slots=True)
class _Container:
    """A list or mapping whose end has not come yet."""

    value: dict[str, object] | list[object]
    place: Place
    key: str | None = None
    key_line: int = 0


def parse_yaml(text: bytes, what: str) -> tuple[object, Place]:
    """Return the document in `text` as plain data, and where its values stand.

    Args:
        text: UTF-8; an empty document is None.
        what: how messages name the document.

    Returns:
        None, bool, int, float, str, and lists and dicts (keys are str) of them.

    Raises:
        TooLarge: more than 1 MiB, 200,000 values or 32 levels.
        InvalidInput: not YAML, or one of the forms that are refused; the message names the line.
    """
    if len(text) > MAX_BYTES:
        raise TooLarge(f"{what}: {len(text)} bytes; at most {MAX_BYTES} are read")
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{what}: not UTF-8 at byte {error.start}") from None
    builder = _Builder(what)
    try:
        for event in yaml.parse(decoded, Loader=_PARSER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InvalidInput(f"{what}: {line}{error.problem or 'not YAML'}") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).splitlines()[0][:_SHOWN] if str(error) else "not YAML"
        raise InvalidInput(f"{what}: {reason}") from None
    return builder.document, builder.place


class _Builder:
    """Puts one document together from parser events."""

    def __init__(self, what: str) -> None:
        self.document: object = None
        self.place = Place(1)
        self._what = what
        self._open: list[_Container] = []
        self._documents = 0
        self._nodes = 0

    def take(self, event: yaml.Event) -> None:
        """Add one event; events come in the order of the text."""
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._refusal(line, "a second document; expected one")
        elif isinstance(event, yaml.AliasEvent):
            raise self._refusal(line, "aliases (*name) are not read; write the value out")
        elif isinstance(event, yaml.NodeEvent):
            self._check_node(event, line)
            if isinstance(event, yaml.ScalarEvent):
                self._take_scalar(event, line)
            else:
                self._begin({} if isinstance(event, yaml.MappingStartEvent) else [], line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()

    def _check_node(self, event: yaml.NodeEvent, line: int) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise TooLarge(f"{self._what}: more than {_MAX_NODES} values")
        if event.anchor is not None:
            raise self._refusal(line, f"anchors (&{event.anchor[:_SHOWN]}) are not read")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._refusal(line, f"tags ({tag[:_SHOWN]}) are not read")

    def _begin(self, value: dict[str, object] | list[object], line: int) -> None:
        if len(self._open) >= _MAX_DEPTH:
            raise TooLarge(f"{self._what}: line {line}: nested deeper than {_MAX_DEPTH}")
        if self._expects_key():
            raise self._refusal(line, "a list or mapping as a key; expected text")
        place = self._add(value, line)
        self._open.append(_Container(value, place))

    def _take_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text = event.value
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise self._refusal(line, "half of a surrogate pair; expected characters")
        if not self._expects_key():
            self._add(self._scalar(text, line) if event.implicit[0] else text, line)
            return
        container = self._open[-1]
        assert isinstance(container.value, dict)
        if text in container.value:
            raise self._refusal(line, f"the key {text[:_SHOWN]!r} stands there twice")
        container.key, container.key_line = text, line

    def _expects_key(self) -> bool:
        return (
            bool(self._open)
            and isinstance(self._open[-1].value, dict)
            and self._open[-1].key is None
        )

    def _add(self, value: object, line: int) -> Place:
        """Put `value` where it belongs; return its place."""
        if not self._open:
            self.document, self.place = value, Place(line)
            return self.place
        container = self._open[-1]
        if isinstance(container.value, list):
            step: str | int = len(container.value)
            container.value.append(value)
        else:
            assert container.key is not None
            step, line = container.key, container.key_line
            container.value[step] = value
            container.key = None
        place = container.place.parts[step] = Place(line)
        return place

    def _scalar(self, text: str, line: int) -> bool | int | float | str | None:
        """Return a plain scalar by the core schema."""
        if text in _NULLS:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        number = _NUMBER.fullmatch(text)
        if number is None:
            return text
        if len(text) > _MAX_DIGITS:
            raise self._refusal(line, f"a number of more than {_MAX_DIGITS} characters")
        if number["integer"] or number["base"]:
            return int(text, 0 if number["base"] else 10)
        value = math.inf if number["endless"] else float(text)
        if math.isinf(value):
            raise self._refusal(line, f"the number {text}; expected a finite one")
        return value

    def _refusal(self, line: int, reason: str) -> InvalidInput:
        return InvalidInput(f"{self._what}: line {line}: {reason}")
