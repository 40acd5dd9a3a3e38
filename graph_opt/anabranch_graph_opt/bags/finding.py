"""Finds lookups whose rows are pooled right away, so that the lookup can do it.

A guess of what the graph does with the rows is proven by running that part of the graph. What is
not proven is looked up row by row, and pooled where it always was.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.bags.bodies import body_owners
from anabranch_graph_opt.bags.caller_side import CallerSide
from anabranch_graph_opt.bags.factors import WeightMaker
from anabranch_graph_opt.bags.found_bags import Bag
from anabranch_graph_opt.bags.guesses import Guess, guesses
from anabranch_graph_opt.bags.proofs import Claim, prove
from anabranch_graph_opt.bags.ragged_bags import RaggedSearch
from anabranch_graph_opt.bags.reference_runner import ReferenceRunner
from anabranch_graph_opt.bags.regions import Regions
from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.id_grids import GridFinder
from anabranch_graph_opt.row_axes import AxisKind, RowAxes
from anabranch_graph_opt.running import ModelRunner

__all__ = ["find_bags"]

_ALL: Final[frozenset[AxisKind]] = frozenset({"rows", "none", "ids", "bag"})


def find_bags(
    model: ir.Model,
    found: Sequence[FoundLookup],
    axes: RowAxes,
    weights: Set[str],
    runner: ModelRunner | None = None,
) -> Mapping[ir.Value, Bag]:
    """Return rows of lookups -> the bag that they are there for.

    Args:
        model: in normal form; nodes that make weights are added, which nothing reads yet.
        found: its lookups.
        axes: what axis 0 of its inputs counts.
        weights: names of float initializers that may be updated later: no bag depends on them.
        runner: runs parts of the model; by default the reference implementation of ONNX.
    """
    search = _Search(model, axes, weights, runner or ReferenceRunner())
    bags = {}
    for each in found:
        if each.is_cut and each.table.dtype is ir.DataType.FLOAT and each.form == "gather":
            bag = search.bag(each)
            if bag is not None:
                bags[each.output] = bag
    return bags


class _Search:
    """What is the same for all lookups of a model."""

    def __init__(
        self, model: ir.Model, axes: RowAxes, weights: Set[str], runner: ModelRunner
    ) -> None:
        self._model = model
        self._axes = axes
        self._runner = runner
        self._caller = CallerSide(model.graph, axes, weights)
        owners = body_owners(model.graph)
        self._regions = Regions(model.graph, owners, self._caller)
        everything = CallerSide(model.graph, axes, weights, _ALL)
        self._ragged = RaggedSearch(
            model, axes, Regions(model.graph, owners, everything), everything, runner
        )
        self._grids = GridFinder(model, axes)
        self._maker = WeightMaker(model.graph)

    def bag(self, found: FoundLookup) -> Bag | None:
        """Return the bag of a lookup; of several results the last one that is proven."""
        ragged = self._ragged.bag(found)
        if ragged is not None:
            return ragged
        graph = self._model.graph
        results = self._regions.results(found.output)
        made = list(guesses(found.output, results, graph, self._caller))
        if not made:
            return None
        layout = self._layout(found.ids)
        if layout is None:
            return None
        row_shape, length = layout
        for guess in reversed(made):
            bag = self._proven(found, guess, row_shape, length)
            if bag is not None:
                return bag
        return None

    def _layout(self, ids: ir.Value) -> tuple[tuple[int, ...], int] | None:
        """Return the shape of ids (0: batch, -1: batch times length), and the length of bags.

        None where bags are not of one length of 2 or more, side by side in axis 0.
        """
        grid = self._grids.find(ids)
        if grid is not None:
            if grid.row_axis != 0 or len(grid.shape) != 1 or grid.shape[0] < 2:
                return None
            length = grid.shape[0]
            return ((-1,) if grid.block > 1 else (0, length)), length
        if ids.shape is None or len(ids.shape) != 2:
            return None
        columns = ids.shape[1]
        if isinstance(ids.shape[0], int) or not isinstance(columns, int) or columns < 2:
            return None
        return (0, columns), columns

    def _proven(
        self, found: FoundLookup, guess: Guess, row_shape: tuple[int, ...], length: int
    ) -> Bag | None:
        before = guess.output.producer()
        tensor = found.table.const_value
        assert before is not None
        assert tensor is not None
        dim = tensor.shape.numpy()[1]
        variants: list[ir.Value | None] = [None]
        if guess.factors:
            variants = [*self._maker.variants(guess.factors, length, before)]
        for weights in variants:
            if weights is not None and not self._caller.varies(weights):
                continue  # what no request has a say in is no weight of a request
            claim = Claim(found.output, guess.output, guess.combiner, weights, length, dim)
            shape = prove(self._model, claim, row_shape, self._axes, self._runner)
            if shape is not None:
                return Bag(guess.output, shape, guess.combiner, length, weights)
        return None
