"""What a model is apart from the numbers of its weights, as a digest.

Two versions of one training job differ in their weights alone; what was compiled for the graph of
one fits the other. Names that exporters number do not count: values are known by where they are
made. Small integer constants do: they are shapes and columns.
"""

import hashlib
from collections.abc import Iterable, Iterator
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
    graph = _Numbers()
    for word in (*_options(options), *_imports(model), *graph.words(model.graph, is_main=True)):
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


class _Numbers:
    """Numbers values and symbolic sizes in the order in which they are met."""

    def __init__(self) -> None:
        self._values: dict[ir.Value, int] = {}
        self._symbols: dict[str | None, int] = {}

    def words(self, graph: ir.Graph, *, is_main: bool) -> Iterator[str]:
        """Yield the words of a graph; only the main one has names that callers know."""
        for value in graph.inputs:
            name = value.name if is_main else ""
            yield f"input {name} {value.type} {self._shape(value.shape)} {self._number(value)}"
        for node in graph:
            yield from self._constants(node.inputs)
            inputs = " ".join(map(self._number, node.inputs))
            yield f"{node.domain}.{node.op_type}({inputs}) -> {len(node.outputs)}"
            for name, attribute in sorted(node.attributes.items()):
                yield from self._attribute(name, attribute)
            for value in node.outputs:
                self._number(value)
        yield from self._constants(graph.outputs)
        for value in graph.outputs:
            yield f"output {value.name if is_main else ''} {self._number(value)}"

    def _attribute(self, name: str, attribute: ir.Attr) -> Iterator[str]:
        if attribute.type is ir.AttributeType.GRAPH:
            yield f"{name} {{"
            yield from self.words(attribute.as_graph(), is_main=False)
            yield "}"
        elif attribute.type is ir.AttributeType.TENSOR:
            yield f"{name}={_tensor(attribute.as_tensor())}"
        else:
            yield f"{name}={attribute.type.name} {attribute.value!r}"

    def _constants(self, values: Iterable[ir.Value | None]) -> Iterator[str]:
        """Yield what constants are where they are met first."""
        for value in values:
            if value is None or value in self._values or value.const_value is None:
                continue
            self._number(value)
            yield f"constant {_tensor(value.const_value)}"

    def _number(self, value: ir.Value | None) -> str:
        return "-" if value is None else str(self._values.setdefault(value, len(self._values)))

    def _shape(self, shape: ir.Shape | None) -> str:
        """Return a shape, its symbols by number: exporters number them too."""
        if shape is None:
            return "?"
        sizes: list[str] = []
        for size in shape:
            if isinstance(size, int):
                sizes.append(str(size))
            elif size.value is None:
                sizes.append("?")
            else:
                number = self._symbols.setdefault(size.value, len(self._symbols))
                sizes.append(f"s{number}")
        return ",".join(sizes)


def _tensor(tensor: ir.TensorProtocol) -> str:
    words = f"{tensor.dtype} {tensor.shape}"
    if (tensor.dtype.is_integer() or tensor.dtype is ir.DataType.BOOL) and tensor.size <= _SMALL:
        return f"{words} {tensor.numpy().reshape(-1).tolist()}"
    return words
