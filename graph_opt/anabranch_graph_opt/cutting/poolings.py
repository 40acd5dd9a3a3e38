"""Which bags a plan can say: ids and weights side by side in an input, or out of a prelude."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from anabranch_graph_opt.bags.found_bags import Bag
from anabranch_graph_opt.cutting.requests import Pooling
from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.id_grids import GridFinder, IdGrid, IdRun

__all__ = ["FittingBags", "fitting_bags", "poolings", "ragged_poolings"]


@dataclass(frozen=True, slots=True, eq=False)
class FittingBags:
    """Bags that a plan can say, if a prelude can compute what is left.

    Attributes:
        bags: rows of lookups -> their bag.
        sent: weights that an input holds as they are.
        computed: distinct weights that a prelude has to compute.
        joined: distinct tensors of ids that a prelude has to put together for bags: their ids come
            from several places, or each has an offset of its own.
    """

    bags: Mapping[ir.Value, Bag]
    sent: Mapping[ir.Value, IdRun]
    computed: tuple[ir.Value, ...]
    joined: tuple[ir.Value, ...]

    def is_joined(self, found: FoundLookup) -> bool:
        """Whether a prelude puts the ids of a lookup together."""
        return found.output in self.bags and found.ids in self.joined


def fitting_bags(
    bags: Mapping[ir.Value, Bag],
    found: Sequence[FoundLookup],
    grids: Mapping[ir.Value, IdGrid],
    finder: GridFinder,
    users: frozenset[str],
) -> FittingBags:
    """Return the bags that fit.

    A prelude runs for each row. What it would make of the ids of a user stays out of it, so that
    these are still looked up once per user.

    Args:
        bags: rows of lookups -> their bag.
        found: all lookups.
        grids: of ids that need no prelude.
        finder: of the graph.
        users: inputs that hold one user for many rows.
    """
    kept: dict[ir.Value, Bag] = {}
    sent: dict[ir.Value, IdRun] = {}
    computed: dict[ir.Value, None] = {}
    joined: dict[ir.Value, None] = {}
    for each in found:
        bag = bags.get(each.output)
        grid = grids.get(each.ids)
        if bag is None or bag.offsets or not each.is_cut:
            continue
        if grid is not None and (grid.row_axis != 0 or grid.shape != (bag.length,)):
            continue
        of_user = grid is not None and all(run.source in users for run in grid.runs)
        is_parted = grid is not None and len(grid.runs) > 1
        if is_parted and of_user:
            continue
        if bag.weights is not None:
            run = sent.get(bag.weights) or _run(finder, bag)
            if of_user and (run is None or run.source not in users):
                continue
            if run is None:
                computed[bag.weights] = None
            else:
                sent[bag.weights] = run
        if is_parted:
            joined[each.ids] = None
        kept[each.output] = bag
    return FittingBags(kept, sent, tuple(computed), tuple(joined))


def poolings(
    fitting: FittingBags,
    grids: Mapping[FoundLookup, IdGrid],
    computed: Mapping[ir.Value, IdGrid],
) -> dict[FoundLookup, Pooling]:
    """Return how lookups pool their rows.

    Args:
        fitting: bags.
        grids: of all ids.
        computed: of weights that a prelude computes. A bag whose weights are missing is no bag.
    """
    made: dict[FoundLookup, Pooling] = {}
    for each, grid in grids.items():
        bag = fitting.bags.get(each.output)
        if bag is None or not _is_bag(grid, bag):
            continue
        run = None
        if bag.weights is not None:
            weights = computed.get(bag.weights)
            run = fitting.sent.get(bag.weights)
            if run is None and weights is not None and _is_bag(weights, bag):
                run = weights.runs[0]
            if run is None:
                continue
        made[each] = Pooling(bag.output, bag.shape, bag.combiner, run)
    return made


def ragged_poolings(
    bags: Mapping[ir.Value, Bag], found: Sequence[FoundLookup]
) -> dict[FoundLookup, tuple[IdGrid, Pooling]]:
    """Return ids of bags whose length varies, and how they are pooled."""
    made: dict[FoundLookup, tuple[IdGrid, Pooling]] = {}
    for each in found:
        bag = bags.get(each.output)
        if bag is None or not bag.offsets or not each.is_cut:
            continue
        name = None if bag.weights is None else str(bag.weights.name)
        run = None if name is None else IdRun(name, (0, 1))
        pooling = Pooling(bag.output, bag.shape, bag.combiner, run, bag.offsets)
        made[each] = (IdGrid(0, 1, (), (IdRun(bag.ids, (0, 1)),)), pooling)
    return made


def _is_bag(grid: IdGrid, bag: Bag) -> bool:
    return grid.row_axis == 0 and grid.shape == (bag.length,) and len(grid.runs) == 1


def _run(finder: GridFinder, bag: Bag) -> IdRun | None:
    """Return where an input holds the weights of a bag as they are."""
    grid = None if bag.weights is None else finder.find(bag.weights, is_float=True)
    return grid.runs[0] if grid is not None and _is_bag(grid, bag) else None
