"""What a model is apart from the numbers of its weights, as a digest.

Two versions of one training job differ in their weights alone; what was compiled for the graph of
one fits the other. Names that exporters number do not count: values are known by where they are
made. Small integer constants do: they are shapes and columns.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.optimize_options import OptimizeOptions

__all__ = ["structure_hash"]

_SMALL: Final = 1024
"""Elements of an integer constant whose numbers count."""


def structure_hash(model: ir.Model, options: OptimizeOptions) -> str:
    """Return `sha256:` and a digest of topology, types, shapes and options.

    Args:
        model: in normal form; weights are not read.
        options: by which it is optimised.
    """
    digest = hashlib.sha256()
    for word in (*_options(options), *_imports(model), *_graph(model.graph, {})):
        digest.update(word.encode())
        digest.update(b"\0")
    return f"sha256:{digest.hexdigest()}"


def _options(options: OptimizeOptions) -> Iterator[str]:
    yield str(options.min_table_bytes)
    yield str(options.user_inputs)
    yield str(options.user_once)
    yield options.dense
    for name, precision in sorted(options.rows.items()):
        yield f"{name}={precision}"
    for name, axis in sorted(options.axes.items()):
        yield f"{name}:{axis.kind}:{axis.bag}"


def _imports(model: ir.Model) -> Iterator[str]:
    for domain, version in sorted(model.opset_imports.items()):
        yield f"{domain or 'ai.onnx'}@{version}"


def _graph(graph: ir.Graph, numbers: dict[ir.Value, int]) -> Iterator[str]:
    """Yield the words of a graph; `numbers` holds those of the values around it."""

    def number(value: ir.Value | None) -> str:
        if value is None:
            return "-"
        if value not in numbers:
            numbers[value] = len(numbers)
        return str(numbers[value])

    for value in graph.inputs:
        yield f"input {value.name} {value.type} {value.shape} {number(value)}"
    for node in graph:
        for used in node.inputs:
            if used is not None and used not in numbers and used.const_value is not None:
                number(used)
                yield f"constant {_tensor(used.const_value)}"
        inputs = " ".join(map(number, node.inputs))
        yield f"{node.domain}.{node.op_type}({inputs}) -> {len(node.outputs)}"
        for name, attribute in sorted(node.attributes.items()):
            if attribute.type is ir.AttributeType.GRAPH:
                yield f"{name} {{"
                yield from _graph(attribute.as_graph(), numbers)
                yield "}"
            elif attribute.type is ir.AttributeType.TENSOR:
                yield f"{name}={_tensor(attribute.as_tensor())}"
            else:
                yield f"{name}={attribute.value}"
        for value in node.outputs:
            number(value)
    for value in graph.outputs:
        yield f"output {value.name} {number(value)}"


def _tensor(tensor: ir.TensorProtocol) -> str:
    words = f"{tensor.dtype} {tensor.shape}"
    if (tensor.dtype.is_integer() or tensor.dtype is ir.DataType.BOOL) and tensor.size <= _SMALL:
        return f"{words} {tensor.numpy().reshape(-1).tolist()}"
    return words
