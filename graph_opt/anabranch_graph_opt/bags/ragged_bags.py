"""Finds bags of varying length: ids of all bags in one input, where bags start in another.

Both inputs are declared by the model's owner (`axis: ids` and `axis: bag` in model.yaml). What the
graph does with the rows is a loop whose body is not looked at: like all pooling it is guessed, and
proven by running. Whether offsets hold the end of the last bag as well comes out of that too.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.bags.bodies import read_from
from anabranch_graph_opt.bags.caller_side import CallerSide
from anabranch_graph_opt.bags.found_bags import Bag, Combiner
from anabranch_graph_opt.bags.pooled_parts import pooled_part
from anabranch_graph_opt.bags.ragged_batches import RaggedBatch, ragged_batches
from anabranch_graph_opt.bags.regions import Regions
from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_wire.errors import AnabranchError

__all__ = ["RaggedSearch"]

_LAYOUT: Final = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_COMBINERS: Final[tuple[Combiner, ...]] = ("sum", "mean", "max")
_TOLERANCE: Final = 4e-6
"""Of the sum of magnitudes: rounding of float32 sums of few numbers."""
_MIN_BATCHES: Final = 6


class RaggedSearch:
    """Finds bags of varying length in one model.

    Args:
        model: in normal form.
        axes: what axis 0 of its inputs counts.
        regions: of its graph, with all inputs on the caller's side.
        caller: that side.
        runner: runs parts of the model.
    """

    def __init__(
        self,
        model: ir.Model,
        axes: RowAxes,
        regions: Regions,
        caller: CallerSide,
        runner: ModelRunner,
    ) -> None:
        self._model = model
        self._axes = axes
        self._regions = regions
        self._caller = caller
        self._runner = runner

    def bag(self, found: FoundLookup) -> Bag | None:
        """Return the bag of a lookup; of several results the last one that is proven.

        A model whose only inputs are bags has none: nothing else tells how many rows there are.
        """
        ids = self._input_of(found.ids)
        if ids is None or all(axis.kind != "rows" for axis in self._axes.kinds.values()):
            return None
        offsets = self._axes.kinds[ids].bag
        results = self._regions.results(found.output)
        loops = [at for at, value in enumerate(results) if _is_loop(value)]
        if not loops or offsets is None:
            return None
        weights = self._weights(results[: loops[0] + 1], found.output, {ids, offsets}, offsets)
        if weights is None:
            return None
        for output in reversed(results[loops[0] :]):
            bag = self._proven(found, output, ids, offsets, *weights)
            if bag is not None:
                return bag
        return None

    def _input_of(self, value: ir.Value) -> str | None:
        """Return the input of ids, or of factors of ids, that a value is; None where it is none."""
        node = value.producer()
        while node is not None and node.op_type in _LAYOUT and node.inputs[0] is not None:
            value = node.inputs[0]
            node = value.producer()
        kind = self._axes.kinds.get(str(value.name)) if node is None else None
        is_flat = value.shape is not None and len(value.shape) == 1
        return str(value.name) if kind is not None and kind.kind == "ids" and is_flat else None

    def _weights(
        self, results: Sequence[ir.Value], rows: ir.Value, known: set[str], offsets: str
    ) -> list[str] | None:
        """Return the input of factors that the way up to the loop reads, if there is one.

        None where something else of what the caller sends has a say in it.
        """
        names: dict[str, None] = {}
        inside = {rows, *results}
        for result in results:
            node = result.producer()
            assert node is not None
            for value in read_from(node, self._model.graph):
                if value in inside or not self._caller.varies(value):
                    continue
                roots = self._caller.roots(value)
                if roots <= {offsets}:
                    continue
                name = self._input_of(value)
                if name is None or name in known or self._axes.kinds[name].bag != offsets:
                    return None
                names[name] = None
        return list(names) if len(names) <= 1 else None

    def _proven(
        self,
        found: FoundLookup,
        output: ir.Value,
        ids: str,
        offsets: str,
        weights: str | None = None,
    ) -> Bag | None:
        part = pooled_part(self._model, found.output, [output])
        if part is None:
            return None
        content = graph_bytes(part)
        name = str(found.output.name)
        tensor = found.table.const_value
        assert tensor is not None
        dim = tensor.shape.numpy()[1]
        inputs = [value for value in part.graph.inputs if value.name != name]
        if weights is not None and weights not in {value.name for value in inputs}:
            return None
        for with_end in (False, True):
            left: set[Combiner] = {"sum"} if weights is not None else set(_COMBINERS)
            ran = 0
            for batch in ragged_batches(inputs, self._axes, dim, with_end=with_end):
                try:
                    outputs = self._runner.run(content, {**batch.inputs, name: batch.found})
                except AnabranchError:
                    continue
                ran += 1
                pooled = outputs[str(output.name)]
                factors = None if weights is None else batch.inputs[weights]
                left = {each for each in left if _is_pooled(pooled, batch, factors, each)}
            if ran >= _MIN_BATCHES and len(left) == 1:
                value = None
                if weights is not None:
                    value = next(v for v in self._model.graph.inputs if v.name == weights)
                return Bag(output, (dim,), left.pop(), 0, value, ids, offsets)
        return None


def _is_loop(value: ir.Value) -> bool:
    node = value.producer()
    return node is not None and node.op_type == "Loop"


def _is_pooled(
    output: Array, batch: RaggedBatch, factors: Array | None, combiner: Combiner
) -> bool:
    if output.shape != (len(batch.lengths), batch.found.shape[1]) or output.dtype != np.float32:
        return False
    values: NDArray[np.float64] = batch.found.astype(np.float64)
    if factors is not None:
        values = values * factors.astype(np.float64)[:, None]
    begin = 0
    for row, length in zip(output.astype(np.float64), batch.lengths, strict=True):
        bag = values[begin : begin + length]
        begin += length
        expected = np.zeros(values.shape[1])
        if length:
            expected = {"sum": bag.sum(0), "mean": bag.mean(0), "max": bag.max(0)}[combiner]
        if not np.all(np.abs(row - expected) <= _TOLERANCE * np.abs(bag).sum(axis=0)):
            return False
    return True
