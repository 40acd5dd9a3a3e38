"""Number arrays as JSON text, and the limits of a JSON document, at native speed.

Invariant: a decimal number becomes the nearest value of its datatype, rounded once; what the
datatype cannot hold is refused, never clipped.

Every function may be called from any thread and releases the GIL for more than 4 KiB of text. The
buffer must stay unchanged until the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anabranch_runtime import _native
from anabranch_runtime._native import (
    JsonError,
    JsonStringTooLong,
    JsonTooDeep,
    JsonTooManyElements,
)
from anabranch_wire.tensors import DATATYPES, Datatype, datatype_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from numpy.typing import NDArray

__all__ = [
    "JsonError",
    "JsonStringTooLong",
    "JsonTooDeep",
    "JsonTooManyElements",
    "detach",
    "dump",
    "parse",
    "scan",
]


def parse(
    buffer: ReadableBuffer, datatype: Datatype, expected_count: int, max_depth: int
) -> NDArray[np.generic]:
    """Return the numbers of a JSON array, flattened in the order of the text.

    The array may be flat or nested to any shape. BOOL takes true, false, 0 and 1; FP32 and FP64
    take the bare tokens NaN, Infinity and -Infinity too.

    Args:
        buffer: the text of the array, white space around it allowed.
        datatype: BOOL, an INT or UINT type, FP32 or FP64.
        expected_count: how many numbers there must be.
        max_depth: how many arrays may be inside each other.

    Returns:
        (expected_count,) of the datatype's dtype, on a 64-byte boundary, writable.

    Raises:
        JsonError: the text is malformed, holds something else, or has another number of elements;
            the message names the element, its byte, what was found and what was expected.
        JsonTooDeep: a `JsonError` for too many nested arrays.
        ValueError: the datatype has no JSON numbers (FP16, BF16, BYTES).
    """
    numbers = _native.parse_numbers(buffer, datatype, expected_count, max_depth)
    return numbers.view(DATATYPES[datatype])


def detach(buffer: ReadableBuffer, key: str, max_arrays: int) -> tuple[bytes, list[memoryview]]:
    """Take the number arrays out of a JSON document, for a decoder to see only the rest.

    An array is taken out if it is the value of a member named `key` and holds neither strings nor
    objects; in its place the document has `[i]`, its index among those taken out. Together with a
    `parse` of every array, decoding what is left accepts the documents that decoding the whole
    would, and those with bare NaN and Infinity.

    Args:
        buffer: the document, before or after a `scan`.
        key: name of the members, without characters that JSON escapes. A document that writes the
            name with escapes keeps its array.
        max_arrays: how many may be taken out.

    Returns:
        The document that is left, and the arrays' text as views of `buffer`.

    Raises:
        JsonTooManyElements: more than `max_arrays`.
    """
    document, places = _native.detach_numbers(buffer, key, max_arrays)
    text = memoryview(buffer).cast("B")
    return document, [text[begin:end] for begin, end in places]


def dump(array: NDArray[np.generic]) -> bytes:
    """Return the flat JSON array of an array's elements, in C order.

    Floats are the shortest text that reads back as the same value of their own dtype; NaN and the
    infinities are the bare tokens NaN, Infinity and -Infinity.

    Args:
        array: any shape and memory order, of a dtype that `parse` can return.

    Raises:
        ValueError: the dtype has no JSON numbers.
    """
    return _native.dump_numbers(np.ascontiguousarray(array).data, datatype_of(array.dtype))


def scan(buffer: ReadableBuffer, max_depth: int, max_elements: int, max_string_bytes: int) -> None:
    """Check the limits of a whole JSON document without allocating anything.

    A document that passes cannot make a decoder exceed them. Whether it is well-formed is for the
    decoder to say.

    Args:
        buffer: the document.
        max_depth: arrays and objects inside each other.
        max_elements: values in arrays and members of objects, all together; an empty array or
            object counts as if it had one.
        max_string_bytes: bytes between the quotes of a string or key, escapes as written.

    Raises:
        JsonTooDeep: more nesting than `max_depth`.
        JsonTooManyElements: more elements than `max_elements`.
        JsonStringTooLong: a longer string than `max_string_bytes`.
    """
    _native.scan_json(buffer, max_depth, max_elements, max_string_bytes)
