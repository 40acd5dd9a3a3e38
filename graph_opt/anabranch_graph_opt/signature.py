"""What a model takes and gives: names, datatypes and axes of its graph's inputs and outputs.

Only declarations are read. Weights, external or not, stay untouched.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.model_source import ModelSource, open_model
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["DATATYPE_OF_ONNX", "Signature", "read_signature"]

DATATYPE_OF_ONNX: Final[Mapping[ir.DataType, Datatype]] = MappingProxyType(
    {
        ir.DataType.BOOL: "BOOL",
        ir.DataType.UINT8: "UINT8",
        ir.DataType.UINT16: "UINT16",
        ir.DataType.UINT32: "UINT32",
        ir.DataType.UINT64: "UINT64",
        ir.DataType.INT8: "INT8",
        ir.DataType.INT16: "INT16",
        ir.DataType.INT32: "INT32",
        ir.DataType.INT64: "INT64",
        ir.DataType.FLOAT16: "FP16",
        ir.DataType.FLOAT: "FP32",
        ir.DataType.DOUBLE: "FP64",
        ir.DataType.BFLOAT16: "BF16",
        ir.DataType.STRING: "BYTES",
    }
)
"""ONNX element type -> protocol name; types that are missing have none."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs of a model, in the order of its graph.

    Attributes:
        inputs: what a caller sends. Initializers that double as inputs are weights, not inputs.
        outputs: what a caller gets.
        symbols: input or output name -> one entry an axis: the symbolic size's name, or None where
            the size is fixed or has no name.
        opset: version of the default operator set.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: Mapping[str, tuple[str | None, ...]]
    opset: int


def read_signature(source: ModelSource) -> Signature:
    """Return the signature of an ONNX model, reading declarations only.

    Raises:
        NotFound: the path does not exist.
        Corrupt: not an ONNX file.
        InvalidInput: a malformed graph: no output, a name twice, no operator set.
        Unsupported: an input or output that no tensor protocol can carry (sequence, map, optional,
            sparse, 4-bit, 8-bit float or complex elements, unknown rank).
    """
    model = open_model(source)
    graph = model.graph
    opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
    if opset is None:
        raise InvalidInput("the model imports no version of the default ONNX operator set")
    values = [value for value in graph.inputs if value.name not in graph.initializers]
    if not graph.outputs:
        raise InvalidInput("the model's graph has no output")
    inputs = tuple(_declared("input", value) for value in values)
    outputs = tuple(_declared("output", value) for value in graph.outputs)
    for kind, specs in (("input", inputs), ("output", outputs)):
        counts = Counter(spec.name for spec in specs)
        twice = {name for name, count in counts.items() if count > 1}
        if twice:
            raise InvalidInput(f"{kind} {min(twice)!r} is declared twice")
    symbols = {str(value.name): _axis_names(value) for value in (*values, *graph.outputs)}
    return Signature(inputs, outputs, MappingProxyType(symbols), opset)


def _declared(kind: str, value: ir.Value) -> TensorSpec:
    if not value.name:
        raise InvalidInput(f"the graph has an {kind} without a name")
    if value.type is None:
        raise Unsupported(f"{kind} {value.name!r} has no declared type")
    if not isinstance(value.type, ir.TensorType):
        container = type(value.type).__name__.removesuffix("Type").lower()
        raise Unsupported(f"{kind} {value.name!r} is a {container}; only dense tensors are served")
    datatype = DATATYPE_OF_ONNX.get(value.type.dtype)
    if datatype is None:
        raise Unsupported(
            f"{kind} {value.name!r} has elements of type {value.type.dtype.name}, "
            "for which the Open Inference Protocol has no datatype"
        )
    if value.shape is None:
        raise Unsupported(
            f"{kind} {value.name!r} declares no rank; export it with a shape "
            "(symbolic axes are fine) or run ONNX shape inference on the model"
        )
    return TensorSpec(value.name, datatype, tuple(_size(axis) for axis in value.shape))


def _size(axis: int | ir.SymbolicDim) -> int:
    """Size of a declared axis; -1 where it varies. Exporters also write -1 as a fixed size."""
    return axis if isinstance(axis, int) and axis >= 0 else -1


def _axis_names(value: ir.Value) -> tuple[str | None, ...]:
    shape = value.shape or ()
    return tuple(None if isinstance(axis, int) else axis.value for axis in shape)
