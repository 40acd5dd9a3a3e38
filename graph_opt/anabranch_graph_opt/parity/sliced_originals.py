"""Running an original without its large tables: only the rows that a batch uses are handed to it.

A backend that loads a model holds its tables, or maps them in large pages of which a few rows touch
nearly all. Here two graphs run in place of the original: one gives the row numbers that its lookups
use, the other is the original with these rows as inputs. Both are made of the nodes of the original
as it was published, so they say nothing else than it does; row numbers outside of a table are
refused as ONNX has it.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.model_source import inlined
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_wire.errors import AnabranchError, InvalidInput, Unavailable

__all__ = ["SLICED_BYTES", "SlicedRunner", "sliced_runner"]

SLICED_BYTES: Final = 1 << 20
"""Smaller tables stay where they are."""

_TYPES: Final = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE})
_INT64: Final = ir.TensorType(ir.DataType.INT64)
_ROWS: Final = "ab_sliced_rows_"
_NUMBERS: Final = "ab_sliced_numbers_"
_PLACES: Final = "ab_sliced_places_"


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """One table of the original.

    Attributes:
        name: of the table.
        tensor: [rows, dim].
        input: of the sliced graph, which takes the rows that are used.
        places: output of the graph of row numbers -> input of the sliced graph that says where
            among the rows that are used these numbers are.
    """

    name: str
    tensor: ir.TensorProtocol
    input: str
    places: Mapping[str, str]


class SlicedRunner:
    """A `ModelRunner` that runs one model sliced, and all others as they are. For one thread.

    Args:
        path: of the model.
        numbers: bytes of the graph that gives row numbers.
        sliced: bytes of the model without its large tables.
        readings: those tables.
        runner: of all other models.
        others: two more, which keep the sessions of both graphs.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        numbers: ir.Model,
        sliced: ir.Model,
        readings: Collection[_Reading],
        runner: ModelRunner,
        others: tuple[ModelRunner, ModelRunner],
    ) -> None:
        self._path = os.fspath(path)
        self._taken = frozenset(str(value.name) for value in numbers.graph.inputs)
        self._numbers = graph_bytes(numbers)
        self._sliced = graph_bytes(sliced)
        self._readings = tuple(readings)
        self._runner = runner
        self._number_runner, self._sliced_runner = others

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return every output of `model`; see `ModelRunner`."""
        if isinstance(model, bytes) or os.fspath(model) != self._path:
            return self._runner.run(model, inputs)
        taken = {name: array for name, array in inputs.items() if name in self._taken}
        numbers = self._number_runner.run(self._numbers, taken)
        feed = dict(inputs)
        for reading in self._readings:
            _fill(feed, reading, numbers)
        return self._sliced_runner.run(self._sliced, feed)


def sliced_runner(
    model: ir.Model,
    path: str | os.PathLike[str],
    runner: ModelRunner,
    others: tuple[ModelRunner, ModelRunner],
    min_bytes: int = SLICED_BYTES,
) -> ModelRunner:
    """Return what runs a model without its large tables; `runner` where it has none to be sliced.

    A table is sliced where all that reads it is lookups of the main graph, whose row numbers do not
    depend on rows of such a table.

    Args:
        model: the original, which is not changed.
        path: by which it is run.
        runner: runs all other models.
        others: two more.
        min_bytes: of a table that is sliced.
    """
    sliced = inlined(model).clone()
    graph = sliced.graph
    tables = [value for value in graph.initializers.values() if _is_sliced(value, graph, min_bytes)]
    if not tables:
        return runner
    lookups = {table: [node for node, _ in table.uses()] for table in tables}
    ids = dict.fromkeys(node.inputs[1] for nodes in lookups.values() for node in nodes)
    wanted = [value for value in ids if value is not None]
    try:
        numbers = _numbers(sliced, wanted)
    except (AnabranchError, ValueError):  # a graph that cannot be taken apart
        return runner
    if any(str(table.name) in numbers.graph.initializers for table in tables):
        return runner
    readings = [
        _cut_off(graph, table, nodes, index, wanted)
        for index, (table, nodes) in enumerate(lookups.items())
    ]
    return SlicedRunner(path, numbers, sliced, readings, runner, others)


def _is_sliced(value: ir.Value, graph: ir.Graph, min_bytes: int) -> bool:
    tensor = value.const_value
    if (
        tensor is None
        or tensor.dtype not in _TYPES
        or len(tensor.shape) != 2
        or tensor.nbytes < min_bytes
        or value.is_graph_output()
        or value in graph.inputs
        or not value.uses()
    ):
        return False
    return all(
        node.graph is graph
        and node.op_type == "Gather"
        and node.domain in ("", "ai.onnx")
        and index == 0
        and node.attributes.get_int("axis", 0) in (0, -2)
        and node.inputs[1] is not None
        and node.inputs[1].const_value is None
        for node, index in value.uses()
    )


def _numbers(model: ir.Model, wanted: list[ir.Value]) -> ir.Model:
    """Return the part of a model that computes row numbers, as outputs of their own names."""
    graph = ir.convenience.extract(model.graph, list(model.graph.inputs), wanted)
    for index, value in enumerate(list(graph.outputs)):
        node = ir.node("Cast", [value], {"to": ir.DataType.INT64})
        output = node.outputs[0]
        output.name, output.type = f"{_NUMBERS}{index}", _INT64
        graph.append(node)
        graph.outputs[index] = output
    for value in [value for value in graph.inputs if not value.uses()]:
        graph.inputs.remove(value)
    graph.opset_imports.update(model.opset_imports)
    return ir.Model(graph, ir_version=model.ir_version)


def _cut_off(
    graph: ir.Graph, table: ir.Value, nodes: list[ir.Node], index: int, outputs: list[ir.Value]
) -> _Reading:
    """Let the lookups of a table read rows and numbers that come in as inputs.

    Args:
        graph: of the original, which is changed.
        table: in it.
        nodes: that read the table.
        index: of the table.
        outputs: whose numbers the other graph gives, in its order.
    """
    tensor = table.const_value
    assert tensor is not None
    assert table.type is not None
    dim = tensor.shape.numpy()[1]
    rows = ir.Value(name=f"{_ROWS}{index}", type=table.type, shape=ir.Shape([None, dim]))
    graph.inputs.append(rows)
    places: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        ids = node.inputs[1]
        assert ids is not None
        if ids not in places:
            name = f"{_PLACES}{index}_{len(places)}"
            places[ids] = ir.Value(name=name, type=_INT64)
            graph.inputs.append(places[ids])
        node.replace_input_with(0, rows)
        node.replace_input_with(1, places[ids])
    del graph.initializers[str(table.name)]
    return _Reading(
        str(table.name),
        tensor,
        str(rows.name),
        {f"{_NUMBERS}{outputs.index(ids)}": str(place.name) for ids, place in places.items()},
    )


def _fill(feed: dict[str, Array], reading: _Reading, numbers: Mapping[str, Array]) -> None:
    """Add the rows of a table that are used, and where among these each lookup finds its own."""
    rows = reading.tensor.shape.numpy()[0]
    flat = [numbers[name].reshape(-1) for name in reading.places]
    every = np.concatenate(flat).astype(np.int64, copy=False)
    outside = (every < -rows) | (every >= rows)
    if outside.any():
        raise InvalidInput(
            f"row {every[outside][0]} is outside of table {reading.name!r} with {rows} rows"
        )
    used, at = np.unique(np.where(every < 0, every + rows, every), return_inverse=True)
    feed[reading.input] = _rows(reading, used)
    begin = 0
    for (name, place), own in zip(reading.places.items(), flat, strict=True):
        part = at.reshape(-1)[begin : begin + len(own)]
        feed[place] = part.reshape(numbers[name].shape)
        begin += len(own)


def _rows(reading: _Reading, used: NDArray[np.int64]) -> Array:
    """Return rows of a table by rising number; those in a file are read one by one."""
    tensor = reading.tensor
    if not isinstance(tensor, ir.ExternalTensor):
        return np.asarray(tensor.numpy()[used])
    dim = tensor.shape.numpy()[1]
    dtype = tensor.dtype.numpy().newbyteorder("<")
    found = np.empty((len(used), dim), dtype)
    try:
        with open(tensor.path, "rb", buffering=0) as file:
            for index, row in enumerate(used.tolist()):
                file.seek((tensor.offset or 0) + row * found[index].nbytes)
                if file.readinto(found[index]) != found[index].nbytes:
                    raise Unavailable(f"table {reading.name!r}: its file was cut off meanwhile")
    except OSError as error:
        raise Unavailable(f"table {reading.name!r} cannot be read: {error.strerror}") from None
    return found.astype(tensor.dtype.numpy(), copy=False)
