"""Whether the numbers of a model's weights are there: in the file, or beside it in its folder.

Nothing is read: sizes and places are enough.
"""

import os
import stat
from collections.abc import Iterator

import onnx
import onnx_ir as ir

from anabranch_wire.errors import InvalidInput

__all__ = ["check_weight_data"]

_SHOWN = 120


def check_weight_data(model: ir.Model) -> None:
    """Check every initializer of a model.

    Raises:
        InvalidInput: one is shorter than its shape says, or in a file that is missing, too short
            or outside of the model's folder.
    """
    for tensor in _tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            _check_external(tensor)
        elif isinstance(tensor, ir.TensorProtoTensor):
            _check_inside(tensor.raw, tensor)


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _check_inside(proto: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
    if any(size < 0 for size in proto.dims):
        raise InvalidInput(f"initializer {_name(tensor)} has an axis of a negative size")
    if proto.HasField("raw_data") and len(proto.raw_data) != tensor.nbytes:
        raise InvalidInput(
            f"initializer {_name(tensor)} has {len(proto.raw_data)} bytes; its shape "
            f"{list(proto.dims)} needs {tensor.nbytes}"
        )
    if proto.data_type == onnx.TensorProto.FLOAT and not proto.HasField("raw_data"):
        found = len(proto.float_data)
        if found != tensor.size:
            raise InvalidInput(
                f"initializer {_name(tensor)} has {found} numbers; its shape {list(proto.dims)} "
                f"needs {tensor.size}"
            )


def _check_external(tensor: ir.ExternalTensor) -> None:
    place = f"external data of {_name(tensor)}"
    folder = os.path.realpath(os.fspath(tensor.base_dir) or ".")
    location = os.fspath(tensor.location)
    if "\0" in location:
        raise InvalidInput(f"{place}: its location is no path")
    path = os.path.realpath(os.path.join(folder, location))
    shown = location[:_SHOWN]
    if os.path.isabs(location) or os.path.commonpath((folder, path)) != folder:
        raise InvalidInput(f"{place}: {shown} is outside of the folder of the model")
    try:
        status = os.stat(path)
    except OSError:
        raise InvalidInput(f"{place}: {shown}: no such file") from None
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{place}: {shown} is no regular file")
    begin = tensor.offset or 0
    if begin < 0 or begin + tensor.nbytes > status.st_size:
        raise InvalidInput(
            f"{place}: bytes {begin} to {begin + tensor.nbytes} are needed, {shown} has "
            f"{status.st_size}"
        )


def _name(tensor: ir.TensorProtocol) -> str:
    return repr(str(tensor.name)[:_SHOWN])
