"""Safetensors files: written in a stream and read where they lie; no number changes on the way.

The format is https://github.com/huggingface/safetensors#format: eight bytes with the length of the
header, the header as JSON, and the numbers, without a gap or an overlap. Nothing that a file says
of itself is trusted. bf16 is 16 bits here, like the others.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput

__all__ = [
    "NUMPY_TYPES",
    "Header",
    "Tensor",
    "TensorPlace",
    "file_parts",
    "read_header",
    "read_tensors",
]

NUMPY_TYPES: Final[Mapping[str, np.dtype[np.generic]]] = {
    name: np.dtype(numpy)
    for name, numpy in (
        ("F64", "<f8"), ("F32", "<f4"), ("F16", "<f2"), ("BF16", "<u2"),
        ("I64", "<i8"), ("I32", "<i4"), ("I16", "<i2"), ("I8", "|i1"),
        ("U64", "<u8"), ("U32", "<u4"), ("U16", "<u2"), ("U8", "|u1"), ("BOOL", "|b1"),
    )
}  # fmt: skip
"""Datatype of the format -> how NumPy holds it. BF16 is its bits."""

_LENGTH_BYTES: Final = 8
_METADATA: Final = "__metadata__"
_MAX_HEADER: Final = 100_000_000
_MAX_NAMES: Final = 100_000
_SHOWN: Final = 300

_Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor in the header."""

    dtype: str
    shape: Annotated[tuple[_Size, ...], Meta(max_length=64)]
    data_offsets: tuple[_Size, _Size]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor that is to be written, or was read.

    Attributes:
        dtype: one of `NUMPY_TYPES`.
        shape: of the whole.
        parts: arrays that lie one behind the other in it; each has the dtype.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: Iterable[NDArray[np.generic]]

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * NUMPY_TYPES[self.dtype].itemsize

    @property
    def array(self) -> NDArray[np.generic]:
        """The one part of a tensor that was read, in its shape."""
        (part,) = self.parts
        return part


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies.

    Attributes:
        dtype: one of `NUMPY_TYPES`.
        shape: of it.
        begin: of its bytes, from the beginning of the file.
        end: of them, in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Header:
    """What a file says of itself.

    Attributes:
        tensors: by name, as they follow each other; together they are all of the file's numbers.
        metadata: texts of whoever wrote it.
    """

    tensors: Mapping[str, TensorPlace]
    metadata: Mapping[str, str]


def read_header(read: Callable[[int, int], bytes], size: int, what: str) -> Header:
    """Return what a file says of itself, after it was found to be true of a file of its size.

    Args:
        read: returns the bytes from one place of the file to another; fewer where it ends before.
        size: of the file.
        what: how messages name it.

    Raises:
        InvalidInput: it is no such file; says what is wrong.
    """
    if size < _LENGTH_BYTES:
        raise _malformed(what, f"{size} bytes are no header")
    length = int.from_bytes(read(0, _LENGTH_BYTES), "little")
    start = _LENGTH_BYTES + length
    if length > _MAX_HEADER or start > size:
        raise _malformed(what, f"a header of {length} bytes in a file of {size}")
    text = read(_LENGTH_BYTES, start)
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(
            raw.pop(_METADATA, msgspec.Raw(b"null")), type=dict[str, str] | None
        )
        if len(raw) > _MAX_NAMES:
            raise _malformed(what, f"{len(raw)} tensors; expected at most {_MAX_NAMES}")
        entries = {name: msgspec.json.decode(one, type=_Entry) for name, one in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(what, str(error)) from None
    if not text.startswith(b"{"):
        raise _malformed(what, "its header does not begin with {")
    return Header(_placed(entries, start, size, what), metadata or {})


def read_tensors(data: NDArray[np.uint8], what: str) -> dict[str, Tensor]:
    """Return the tensors of a file; each has one part, which is a view of the file's bytes.

    Args:
        data: all of them, in memory or mapped; not copied. The views may be unaligned.
        what: how messages name the file.

    Raises:
        InvalidInput: it is no such file; says what is wrong.
    """
    header = read_header(lambda begin, end: data[begin:end].tobytes(), len(data), what)
    tensors = {}
    for name, place in header.tensors.items():
        flat = data[place.begin : place.end].view(NUMPY_TYPES[place.dtype])
        try:
            array = flat.reshape(place.shape)
        except ValueError as error:  # sizes that no array has
            raise _malformed(what, f"{name}: {error}") from None
        tensors[name] = Tensor(place.dtype, place.shape, (array,))
    return tensors


def file_parts(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[memoryview]:
    """Yield all bytes of a file; each part is to be used before the next one is asked for.

    Args:
        tensors: what it holds, in this order.
        metadata: texts that go with them.
    """
    header: dict[str, object] = {} if metadata is None else {_METADATA: dict(metadata)}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.bytes
        header[name] = {
            "dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end],
        }  # fmt: skip
        begin = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    yield memoryview(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    for tensor in tensors.values():
        size = 0
        for part in tensor.parts:
            packed = np.ascontiguousarray(part, NUMPY_TYPES[tensor.dtype]).reshape(-1)
            size += packed.nbytes
            yield packed.view(np.uint8).data
        assert size == tensor.bytes, "parts do not make up their tensor"


def _placed(
    entries: Mapping[str, _Entry], start: int, size: int, what: str
) -> dict[str, TensorPlace]:
    """Return where tensors lie in a file whose numbers begin at `start`.

    Raises:
        InvalidInput: they do not follow each other from there to the end of the file.
    """
    at = 0
    places = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        first, end = entry.data_offsets
        numpy = NUMPY_TYPES.get(entry.dtype)
        if numpy is None:
            raise _malformed(what, f"{name}: elements of {entry.dtype[:20]}")
        if first != at or end != first + math.prod(entry.shape) * numpy.itemsize:
            raise _malformed(what, f"{name}: bytes {first} to {end} for shape {list(entry.shape)}")
        if start + end > size:
            raise _malformed(what, f"{name}: it ends behind the file")
        places[name] = TensorPlace(entry.dtype, entry.shape, start + first, start + end)
        at = end
    if start + at != size:
        raise _malformed(what, f"{size - start - at} bytes behind the last tensor")
    return places


def _malformed(what: str, why: str) -> InvalidInput:
    return InvalidInput(f"{what}: no safetensors file: {why[:_SHOWN]}")
