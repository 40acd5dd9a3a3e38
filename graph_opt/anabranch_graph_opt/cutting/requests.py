"""What is to be cut: a table and ids, said so that the plan can look them up."""

from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.id_grids import IdGrid
from anabranch_wire.lookups import Side

__all__ = ["CutRequest"]


@dataclass(frozen=True, slots=True, eq=False)
class CutRequest:
    """One lookup that leaves the graph.

    Attributes:
        found: the lookup.
        grid: its ids.
        users: inputs, and outputs of a prelude, that hold one user for many rows.
    """

    found: FoundLookup
    grid: IdGrid
    users: frozenset[str] = frozenset()

    @property
    def table(self) -> ir.Value:
        """The initializer that is read."""
        return self.found.table

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
        return prod(self.grid.shape) * self.dim
