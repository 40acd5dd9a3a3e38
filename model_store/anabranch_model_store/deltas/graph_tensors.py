"""Where the weights of an ONNX file lie: found without decoding it, however large it is.

Only the structure of the protobuf is walked (ModelProto.graph, GraphProto.initializer and the
fields of each TensorProto; see onnx.proto of ONNX): numbers are passed over, and read when somebody
asks for them.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from anabranch_model_store.containment import resolve_file
from anabranch_model_store.deltas.protobuf_fields import Field, FieldReader
from anabranch_wire.errors import Corrupt, NotFound, Unavailable

__all__ = ["WEIGHT_TYPES", "External", "GraphTensor", "GraphTensors", "raw_bytes"]

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
        raw: its field of numbers as they are in memory; None where they are not there so.
        external: where they lie; None where they are in the file.
        kept: its fields that say nothing of its numbers, nor where they are.
    """

    name: str
    shape: tuple[int, ...]
    element: int
    field: Field
    raw: Field | None
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
                reader = FieldReader(file.fileno(), path.name)
                graphs = [field for field in reader.fields(0, size) if field.number == _GRAPH]
                if len(graphs) != 1:
                    raise Corrupt(f"{path.name}: {len(graphs)} graphs; expected one")
                found = [
                    _tensor(reader, field, path.name)
                    for field in reader.fields(graphs[0].body, graphs[0].end)
                    if field.number == _INITIALIZER
                ]
        except FileNotFoundError:
            raise NotFound(f"{path.name}: no such file") from None
        except OSError as error:
            raise Unavailable(f"{path.name}: cannot be read: {error.strerror}") from None
        return cls(path, size, graphs[0], {tensor.name: tensor for tensor in found})

    def array(self, name: str) -> Array:
        """Return the numbers of an initializer of a type in `WEIGHT_TYPES`; they are the caller's.

        Raises:
            Corrupt: the file is shorter than it says.
            NotFound, InvalidInput: its file beside the graph is missing, or out of the folder.
            Unavailable: it cannot be read.
        """
        tensor = self.tensors[name]
        dtype = tensor.dtype
        assert dtype is not None
        path, size = self.path, math.prod(tensor.shape) * dtype.itemsize
        try:
            if tensor.external is not None:
                path = resolve_file(self.path.resolve().parent, tensor.external.location)
                offset = tensor.external.offset
            elif tensor.raw is not None:
                offset = tensor.raw.body
                if tensor.raw.end - offset != size:
                    raise Corrupt(f"{path.name}: weight {name!r} has other bytes than its shape")
            else:
                return self._decoded(tensor).astype(dtype)
            if offset + size > path.stat().st_size:
                raise Corrupt(f"{path.name}: ends inside of the weight {name!r}")
            flat = np.fromfile(path, np.uint8, size, offset=offset)
        except OSError as error:
            raise Unavailable(f"{path.name}: cannot be read: {error.strerror}") from None
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


def _tensor(reader: FieldReader, field: Field, what: str) -> GraphTensor:
    """Return an initializer.

    Raises:
        Corrupt: it is malformed.
        OSError: the file cannot be read.
    """
    shape: list[int] = []
    element, name = 0, ""
    raw: Field | None = None
    entries: dict[str, str] = {}
    kept: list[Field] = []
    for one in reader.fields(field.body, field.end):
        if one.number not in _DATA_FIELDS:
            kept.append(one)
        match one.number:
            case 1:
                shape += reader.numbers(one)
            case 2:
                element = one.value
            case 8:
                name = reader.text(one)
            case 9:
                raw = one
            case 13:
                parts = {p.number: reader.text(p) for p in reader.fields(one.body, one.end)}
                entries[parts.get(1, "")] = parts.get(2, "")
    external = None
    if entries:
        offset = entries.get("offset", "0")
        if not offset.isdecimal():
            raise Corrupt(f"{what}: weight {name!r}: offset {offset[:40]!r}")
        external = External(entries.get("location", ""), int(offset))
    return GraphTensor(name, tuple(shape), element, field, raw, external, tuple(kept))
