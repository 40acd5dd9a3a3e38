"""A body of `:rank` as a `RankRequest`: features stay views of it, in the form of their columns."""

import re
from typing import Final

import msgspec
import numpy as np

from anabranch_runtime import json_numbers
from anabranch_runtime.ranking.requests import Column, RankRequest
from anabranch_server.json_documents import explained, without_bare_tokens
from anabranch_server.limits import Limits
from anabranch_server.ranking.json_sizes import LONG_BYTES, count_members
from anabranch_server.ranking.sizes import MAX_TOP_K, too_many_features, too_many_outputs
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["read_rank_json"]

_MAX_TIMEOUT_US: Final = 2**64 - 1
_MAX_PRIORITY: Final = 2**32 - 1
_MAX_OUTPUT_BYTES: Final = 1024
_MAX_ESCAPE: Final = 6
"""Bytes that JSON takes for a byte of a string at most, as in `\\u0041`."""


class RankParameters(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Parameters of a ranking request.

    Attributes:
        timeout: microseconds; 0 means none.
        priority: 0 means the default, 1 is the highest.
        routing_key: picks the executor where executors are selected by key.
    """

    timeout: int | None = None
    priority: int | None = None
    routing_key: str | int | None = None


class RankDocument(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A ranking request as JSON; features and outputs are not decoded yet."""

    candidates: dict[str, msgspec.Raw]
    user: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    top_k: int | None = None
    outputs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    explain: bool | None = None
    id: str | None = None
    parameters: RankParameters | None = None


_DOCUMENT: Final = msgspec.json.Decoder(RankDocument)
_NAMES: Final = msgspec.json.Decoder(list[str] | None)
_NO_PARAMETERS: Final = RankParameters()
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.(\w+)`)?\Z", re.S)
_FIELDS: Final = {
    "": RankDocument.__struct_fields__,
    "parameters": RankParameters.__struct_fields__,
}


def read_rank_json(body: bytes | bytearray, limits: Limits) -> RankRequest:
    """Decode a body. Any thread.

    Args:
        body: decompressed. The request's columns are views of it: it must not change as long as
            they live.
        limits: hold before anything is made of it.

    Raises:
        TooLarge: nested too deeply, too many elements, features or outputs, a string too long.
        InvalidInput: not JSON, or no ranking request; says where, and what was expected.
    """
    text = memoryview(body)
    try:
        json_numbers.scan(
            text,
            limits.max_json_depth,
            limits.max_json_elements,
            _MAX_ESCAPE * limits.max_string_bytes,
        )
    except ValueError as error:
        raise TooLarge(f"request JSON: {error}") from None
    if len(text) >= LONG_BYTES:
        most = limits.max_tensors + len(_FIELDS["parameters"])
        if count_members(text, most) > most:
            raise too_many_features(limits)
    try:
        document = _DOCUMENT.decode(text)
        source = None
    except (msgspec.DecodeError, RecursionError) as error:
        document, source = _with_bare_tokens(bytes(text), error)
    parameters = document.parameters or _NO_PARAMETERS
    timeout_us = _natural("parameter 'timeout'", parameters.timeout, _MAX_TIMEOUT_US)
    return RankRequest(
        form="json",
        user=_columns(document.user, source),
        candidates=_columns(document.candidates, source),
        top_k=_natural("top_k", document.top_k, MAX_TOP_K),
        outputs=_outputs(document.outputs, limits),
        explain=bool(document.explain),
        id=document.id or "",
        timeout_s=timeout_us / 1e6 if timeout_us else None,
        priority=_natural("parameter 'priority'", parameters.priority, _MAX_PRIORITY),
        routing_key=parameters.routing_key,
    )


class _Source(msgspec.Struct, frozen=True, gc=False):
    """A document as it was sent, and the text of the same places that was decoded."""

    sent: bytes
    decoded: bytes

    def column(self, value: msgspec.Raw) -> memoryview:
        """Return a value as it was sent."""
        begin = _address(value) - _address(self.decoded)
        return memoryview(self.sent)[begin : begin + len(memoryview(value))]


def _with_bare_tokens(sent: bytes, fault: Exception) -> tuple[RankDocument, _Source]:
    """Decode a document that may hold NaN or Infinity, which strict JSON lacks.

    Raises:
        InvalidInput: it is at fault all the same.
    """
    is_malformed = not isinstance(fault, msgspec.ValidationError | RecursionError)
    text = without_bare_tokens(sent) if is_malformed else None
    if text is None:
        raise InvalidInput(_text_of(fault)) from None
    try:
        return _DOCUMENT.decode(text), _Source(sent, text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(_text_of(error)) from None


def _columns(values: dict[str, msgspec.Raw], source: _Source | None) -> dict[str, Column]:
    if source is None:
        return {name: memoryview(value) for name, value in values.items()}
    return {name: source.column(value) for name, value in values.items()}


def _outputs(value: msgspec.Raw | msgspec.UnsetType, limits: Limits) -> tuple[str, ...]:
    if isinstance(value, msgspec.UnsetType):
        return ()
    if len(memoryview(value)) > _MAX_OUTPUT_BYTES * limits.max_tensors:
        raise too_many_outputs(limits)
    try:
        return tuple(_NAMES.decode(value) or ())
    except (msgspec.DecodeError, RecursionError) as error:
        fault = explained(error).removeprefix("request JSON: ")
        place = "outputs" if fault.startswith("[") else "outputs: "
        raise InvalidInput(f"request JSON: {place}{fault}") from None


def _natural(what: str, value: int | None, most: int) -> int:
    if value is None:
        return 0
    if not 0 <= value <= most:
        raise InvalidInput(f"{what} {str(value)[:40]}: expected an integer from 0 to {most}")
    return value


def _text_of(fault: Exception) -> str:
    """The fault in words; of a field that there is none of, those that there are."""
    unknown = _UNKNOWN.match(str(fault))
    if unknown is None:
        return explained(fault)
    name, place = unknown[1], unknown[2] or ""
    where = f"{place}: " if place else ""
    expected = ", ".join(repr(field) for field in _FIELDS[place])
    return f"request JSON: {where}unknown field {name[:200]!r}: expected {expected}"


def _address(buffer: bytes | msgspec.Raw) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data
