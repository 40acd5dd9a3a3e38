"""What is to be cut: a table and ids, said so that the plan can look them up."""

from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from anabranch_graph_opt.bags.found_bags import Combiner
from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.id_grids import IdGrid, IdRun
from anabranch_wire.lookups import Side

__all__ = ["CutRequest", "Pooling"]


@dataclass(frozen=True, slots=True, eq=False)
class Pooling:
    """How the rows of a request become one before they leave the lookup.

    Attributes:
        output: value of the graph that the pooled row takes the place of.
        shape: of one row of it.
        combiner: how rows become one.
        weights: a factor for each id; None: all are 1.
        offsets: input that says where each bag starts, in the one that holds the ids of all; "":
            all bags are of one length.
    """

    output: ir.Value
    shape: tuple[int, ...]
    combiner: Combiner
    weights: IdRun | None
    offsets: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class CutRequest:
    """One lookup that leaves the graph.

    Attributes:
        found: the lookup.
        grid: its ids.
        users: inputs, and outputs of a prelude, that hold one user for many rows.
        pooling: how its rows become one; None: all are wanted, side by side.
    """

    found: FoundLookup
    grid: IdGrid
    users: frozenset[str] = frozenset()
    pooling: Pooling | None = None

    @property
    def table(self) -> ir.Value:
        """The initializer that is read."""
        return self.found.table

    @property
    def output(self) -> ir.Value:
        """The value that what is looked up takes the place of."""
        return self.found.output if self.pooling is None else self.pooling.output

    @property
    def dim(self) -> int:
        """Numbers of a row of the table."""
        assert self.table.const_value is not None
        return self.table.const_value.shape.numpy()[1]

    @property
    def is_half(self) -> bool:
        """Whether its rows come as f16."""
        return self.table.dtype is ir.DataType.FLOAT16

    @property
    def side(self) -> Side:
        """Whether it happens per row, or once for all rows of a user or a request."""
        once = self.is_shared or all(run.source in self.users for run in self.grid.runs)
        return "user" if once else "row"

    @property
    def is_shared(self) -> bool:
        """Whether all rows of a request share it, with no row of its own anywhere."""
        return self.grid.row_axis is None

    @property
    def columns(self) -> int:
        """Columns of a buffer that it fills."""
        if self.pooling is not None:
            return self.dim
        return prod(self.grid.shape) * self.dim
