"""Opening ONNX models for analysis: one place where files, bytes and protobufs become onnx-ir.

Weights kept in external files are not opened here: onnx-ir maps them only when somebody asks for
their numbers.
"""

import os
from typing import Final

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError
from onnx_ir.passes import InvariantError, PassError
from onnx_ir.passes.common import InlinePass
from onnx_ir.serde import SerdeError

from anabranch_wire.errors import Corrupt, InvalidInput, NotFound, Unsupported

__all__ = ["ModelSource", "inlined", "open_model"]

ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model
"""A path, the bytes of a file, or a model that is already decoded."""

_MALFORMED: Final = (
    SerdeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)
"""What onnx-ir raises on a protobuf that decodes but is no sound model."""


def open_model(source: ModelSource) -> ir.Model:
    """Return `source` as an onnx-ir model; an `ir.Model` is returned as it is.

    Raises:
        NotFound: the path does not exist or is no file.
        Corrupt: the bytes are not an ONNX protobuf.
        InvalidInput: the protobuf decodes, but its graph is malformed.
        Unsupported: an input or output is a map, which onnx-ir cannot represent.
    """
    if isinstance(source, ir.Model):
        return source
    name = "model" if isinstance(source, bytes | onnx.ModelProto) else os.path.basename(source)
    try:
        if isinstance(source, onnx.ModelProto):
            proto, folder = source, None
        elif isinstance(source, bytes):
            proto, folder = onnx.load_model_from_string(source), None
        else:
            proto = onnx.load(source, load_external_data=False)
            folder = os.path.dirname(os.fspath(source))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFound(f"{name}: no such file") from error
    except (DecodeError, UnicodeDecodeError, ValueError) as error:
        raise Corrupt(f"{name}: not an ONNX model: {error}") from error
    if not proto.HasField("graph"):
        raise Corrupt(f"{name}: not an ONNX model: it holds no graph")
    _refuse_maps(proto.graph)
    try:
        model = ir.from_proto(proto)
    except _MALFORMED as error:
        raise InvalidInput(f"{name}: malformed ONNX graph: {error}") from error
    # Without a folder, onnx-ir would open whatever path a tensor names.
    ir.external_data.set_base_dir(model.graph, folder or ".")
    return model


def _refuse_maps(graph: onnx.GraphProto) -> None:
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            if value.type.WhichOneof("value") in ("map_type", "opaque_type"):
                raise Unsupported(f"{kind} {value.name!r} is a map; only dense tensors are served")


def inlined(model: ir.Model) -> ir.Model:
    """Return a model without local functions; `model` itself where it has none.

    The given model is not changed.

    Raises:
        InvalidInput: a function calls itself or is called in a way that it does not allow.
    """
    if not model.functions:
        return model
    try:
        return InlinePass()(model.clone()).model
    except (*_MALFORMED, PassError, InvariantError) as error:
        raise InvalidInput(f"model-local functions cannot be inlined: {error}") from error
