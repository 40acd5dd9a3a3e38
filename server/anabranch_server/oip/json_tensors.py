"""Tensors as JSON: flat or nested arrays in, flat arrays out, numbers by the native parser."""

import re
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import json_numbers
from anabranch_server.limits import Limits
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["BINARY_ONLY", "dump_tensor", "parse_tensor"]

BINARY_ONLY: Final[frozenset[Datatype]] = frozenset({"FP16", "BF16"})
"""Datatypes without a JSON form in the protocol."""

_EMPTY: Final = re.compile(rb"\[[ \t\n\r]*\]")
_STRINGS: Final = msgspec.json.Decoder(list[str])
_ANY: Final = msgspec.json.Decoder()


def parse_tensor(
    data: msgspec.Raw, spec: TensorSpec, shape: tuple[int, ...], limits: Limits
) -> NDArray[np.generic]:
    """Return the `data` of an input as a tensor of `shape`.

    Args:
        data: the JSON value, a flat or nested array.
        spec: gives name and datatype.
        shape: accepted by the model's rules; its elements are at most `limits.max_elements`.
        limits: bounds the nesting.

    Raises:
        InvalidInput: another number of elements, an element that is no such datatype.
    """
    text = memoryview(data)
    if spec.datatype in BINARY_ONLY:
        raise InvalidInput(f"input {spec.name!r}: {spec.datatype} is sent as binary data only")
    count = 1
    for axis in shape:
        count *= axis
    if spec.datatype == "BYTES":
        return _parse_strings(data, spec, count).reshape(shape)
    # Each element takes a digit and a comma or bracket: a count that cannot be there is not
    # allocated.
    expected = count if 2 * count <= len(text) else _count(text)
    try:
        flat = json_numbers.parse(text, spec.datatype, expected, limits.max_json_depth)
    except ValueError as error:
        raise InvalidInput(f"input {spec.name!r}: {error}") from None
    if expected != count:
        raise InvalidInput(
            f"input {spec.name!r}: expected {count} elements for shape {list(shape)}, "
            f"found {expected}"
        )
    return flat.reshape(shape)


def dump_tensor(array: NDArray[np.generic], spec: TensorSpec) -> bytes:
    """Return a tensor as a flat JSON array.

    Raises:
        InvalidInput: a BYTES element is not UTF-8, so only binary can carry it.
    """
    if spec.datatype != "BYTES":
        return json_numbers.dump(array)
    try:
        strings = [value.decode() for value in array.ravel().tolist()]
    except UnicodeDecodeError:
        raise InvalidInput(
            f"output {spec.name!r} is not UTF-8: ask for it with binary_data"
        ) from None
    return msgspec.json.encode(strings)


def _count(text: memoryview) -> int:
    """The elements of an array of numbers, nested or not: commas separate them and empty arrays."""
    data = bytes(text)
    return data.count(b",") + 1 - len(_EMPTY.findall(data))


def _parse_strings(data: msgspec.Raw, spec: TensorSpec, count: int) -> NDArray[np.generic]:
    try:
        strings = _STRINGS.decode(data)
    except msgspec.DecodeError:
        strings = _flattened(data, spec)
    if len(strings) != count:
        raise InvalidInput(f"input {spec.name!r}: expected {count} elements, got {len(strings)}")
    elements = np.empty(count, np.object_)
    elements[:] = [value.encode() for value in strings]
    return elements


def _flattened(data: msgspec.Raw, spec: TensorSpec) -> list[str]:
    """The strings of nested arrays in the order of the text, without recursion."""
    try:
        level: object = _ANY.decode(data)
    except msgspec.DecodeError:
        level = None
    while isinstance(level, list) and all(isinstance(part, list) for part in level) and level:
        level = [element for part in level for element in part]
    if not isinstance(level, list):
        raise InvalidInput(f"input {spec.name!r}: expected an array of strings")
    for element in level:
        if not isinstance(element, str):
            found = "an array" if isinstance(element, list) else repr(element)[:40]
            raise InvalidInput(f"input {spec.name!r}: expected strings, got {found}")
    return level
