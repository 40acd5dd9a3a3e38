"""Where the weights of an ONNX file lie: found without decoding it, however large it is.

Only the structure of the protobuf is walked (ModelProto.graph, GraphProto.initializer and the
fields of each TensorProto; see onnx.proto of ONNX): numbers are passed over, and read when somebody
asks for them.
"""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from anabranch_model_store.containment import resolve_file
from anabranch_wire.errors import Corrupt, NotFound, Unavailable

__all__ = ["WEIGHT_TYPES", "External", "Field", "GraphTensor", "GraphTensors", "raw_bytes"]

Array = NDArray[np.generic]

WEIGHT_TYPES: Final[Mapping[int, np.dtype[np.generic]]] = {
    int(kind): np.dtype(kind.numpy())
    for kind in (
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
        ir.DataType.DOUBLE,
    )
}
"""Element types of ONNX that weights may have, and what they are in NumPy."""

_GRAPH: Final = 7
_INITIALIZER: Final = 5
_DATA_FIELDS: Final = frozenset((4, 5, 6, 7, 9, 10, 11, 13))
"""Fields of TensorProto that hold numbers, or say where they are."""
_VARINT: Final = 0
_WINDOW: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a protobuf message, as it lies in the file.

    Attributes:
        number: of the field.
        kind: its wire type.
        begin: first byte, its tag.
        body: first byte of what it holds.
        end: after its last byte.
        value: of a varint; 0 for others.
    """

    number: int
    kind: int
    begin: int
    body: int
    end: int
    value: int


@dataclass(frozen=True, slots=True)
class External:
    """Where numbers lie beside the file.

    Attributes:
        location: of the file, relative to the folder of the graph.
        offset: of the first byte in it.
    """

    location: str
    offset: int


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """An initializer of the main graph.

    Attributes:
        name: of it.
        shape: of it.
        element: its element type, as ONNX numbers them.
        field: of the graph, that holds it.
        raw: first byte of its numbers in the file; None where they are not there as they are in
            memory.
        external: where they lie; None where they are in the file.
        kept: its fields that say nothing of its numbers, nor where they are.
    """

    name: str
    shape: tuple[int, ...]
    element: int
    field: Field
    raw: int | None
    external: External | None
    kept: tuple[Field, ...]

    @property
    def dtype(self) -> np.dtype[np.generic] | None:
        """Of its numbers; None where it is of no type that weights have."""
        return WEIGHT_TYPES.get(self.element)

    @property
    def type_name(self) -> str:
        """Name of its element type, for messages."""
        try:
            return ir.DataType(self.element).name.lower()
        except ValueError:
            return f"type {self.element}"


@dataclass(frozen=True, slots=True, eq=False)
class GraphTensors:
    """The initializers of an ONNX file.

    Attributes:
        path: of the file.
        size: of it, in bytes.
        graph: field of the model that holds the graph.
        tensors: by name.
    """

    path: Path
    size: int
    graph: Field
    tensors: Mapping[str, GraphTensor]

    @classmethod
    def read(cls, path: Path) -> "GraphTensors":
        """Find the initializers of a file.

        Raises:
            NotFound: there is no such file.
            Corrupt: it is no ONNX file.
            Unavailable: it cannot be read.
        """
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                reading = _Reading(file.fileno(), path.name)
                graphs = [field for field in reading.fields(0, size) if field.number == _GRAPH]
                if len(graphs) != 1:
                    raise Corrupt(f"{path.name}: {len(graphs)} graphs; expected one")
                found = [
                    reading.tensor(field)
                    for field in reading.fields(graphs[0].body, graphs[0].end)
                    if field.number == _INITIALIZER
                ]
        except FileNotFoundError:
            raise NotFound(f"{path.name}: no such file") from None
        except OSError as error:
            raise Unavailable(f"{path.name}: cannot be read: {error.strerror}") from None
        return cls(path, size, graphs[0], {tensor.name: tensor for tensor in found})

    def array(self, name: str) -> Array:
        """Return the numbers of an initializer of a type in `WEIGHT_TYPES`.

        Raises:
            Corrupt: the file is shorter than it says.
            NotFound, InvalidInput: its file beside the graph is missing, or out of the folder.
            Unavailable: it cannot be read.
        """
        tensor = self.tensors[name]
        dtype = tensor.dtype
        assert dtype is not None
        path, offset = self.path, tensor.raw
        if tensor.external is not None:
            path = resolve_file(self.path.resolve().parent, tensor.external.location)
            offset = tensor.external.offset
        try:
            if offset is None:
                return self._decoded(tensor).astype(dtype, copy=False)
            count = math.prod(tensor.shape)
            flat = np.fromfile(path, np.uint8, count * dtype.itemsize, offset=offset)
        except OSError as error:
            raise Unavailable(f"{path.name}: cannot be read: {error.strerror}") from None
        if flat.size != count * dtype.itemsize:
            raise Corrupt(f"{path.name}: ends inside of the weight {name!r}")
        return flat.view(dtype).reshape(tensor.shape)

    def _decoded(self, tensor: GraphTensor) -> Array:
        field = tensor.field
        with self.path.open("rb") as file:
            data = os.pread(file.fileno(), field.end - field.body, field.body)
        try:
            array: Array = onnx.numpy_helper.to_array(onnx.TensorProto.FromString(data))
        except (DecodeError, ValueError) as error:
            raise Corrupt(f"{self.path.name}: weight {tensor.name!r}: {error}") from None
        return array


def raw_bytes(array: Array) -> memoryview:
    """Return the bytes of numbers as graphs hold them; a view of them where they lie like that."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class _Reading:
    """Walks the messages of one open file; for one thread."""

    def __init__(self, file: int, what: str) -> None:
        self._file = file
        self._what = what
        self._begin = 0
        self._data = b""

    def fields(self, begin: int, end: int) -> Iterator[Field]:
        """Yield the fields of a message.

        Raises:
            Corrupt: it is none.
            OSError: the file cannot be read.
        """
        at = begin
        while at < end:
            tag, body = self._varint(at)
            value = 0
            match tag & 7:
                case 0:
                    value, after = self._varint(body)
                case 1:
                    after = body + 8
                case 2:
                    length, body = self._varint(body)
                    after = body + length
                case 5:
                    after = body + 4
                case kind:
                    raise Corrupt(f"{self._what}: no ONNX model: a field of wire type {kind}")
            if after > end:
                raise Corrupt(f"{self._what}: no ONNX model: a field ends after its message")
            yield Field(tag >> 3, tag & 7, at, body, after, value)
            at = after

    def tensor(self, field: Field) -> GraphTensor:
        """Return an initializer.

        Raises:
            Corrupt: it is malformed.
            OSError: the file cannot be read.
        """
        shape: list[int] = []
        element, name, raw = 0, "", None
        entries: dict[str, str] = {}
        kept: list[Field] = []
        for one in self.fields(field.body, field.end):
            if one.number not in _DATA_FIELDS:
                kept.append(one)
            match one.number:
                case 1:
                    shape += [one.value] if one.kind == _VARINT else self._packed(one)
                case 2:
                    element = one.value
                case 8:
                    name = self._text(one)
                case 9:
                    raw = one.body
                case 13:
                    parts = {p.number: self._text(p) for p in self.fields(one.body, one.end)}
                    entries[parts.get(1, "")] = parts.get(2, "")
        external = None
        if entries:
            offset = entries.get("offset", "0")
            if not offset.isdecimal():
                raise Corrupt(f"{self._what}: weight {name!r}: offset {offset[:40]!r}")
            external = External(entries.get("location", ""), int(offset))
        return GraphTensor(name, tuple(shape), element, field, raw, external, tuple(kept))

    def _packed(self, field: Field) -> Iterator[int]:
        at = field.body
        while at < field.end:
            value, at = self._varint(at)
            yield value

    def _text(self, field: Field) -> str:
        return self._bytes(field.body, field.end - field.body).decode(errors="surrogateescape")

    def _varint(self, at: int) -> tuple[int, int]:
        """Return a number, and the place after it."""
        data = self._bytes(at, 10)
        value = 0
        for index, byte in enumerate(data):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, at + index + 1
        raise Corrupt(f"{self._what}: no ONNX model: a number without an end")

    def _bytes(self, at: int, count: int) -> bytes:
        """Return bytes of the file, fewer at its end."""
        begin = at - self._begin
        if begin < 0 or begin + count > len(self._data):
            self._data = os.pread(self._file, max(count, _WINDOW), at)
            self._begin, begin = at, 0
        return self._data[begin : begin + count]
