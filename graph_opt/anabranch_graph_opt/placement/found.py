"""Lookups that a graph holds, and for each of them whether it leaves the graph, or why it stays."""

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

__all__ = ["FoundLookup", "LookupForm"]

LookupForm = Literal["gather", "gather_nd", "gather_elements"]
"""Operator that reads the table: Gather on axis 0, GatherND with one coordinate, or GatherElements
on axis 0 with indices that are the same in all columns."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundLookup:
    """One node that reads rows of a constant table.

    Attributes:
        node: that node, of the normalised graph.
        form: its operator.
        table: a float initializer of rank 2, [rows, dim].
        ids: integer tensor of any rank: which rows. For `gather_nd` without its last axis of
            size 1, and for `gather_elements` one column, in the shape that rows are read in.
        output: [*ids shape, dim].
        reason: "" where it leaves the graph; else why it stays, and what to change in the export,
            in words for a modeller.
    """

    node: ir.Node
    form: LookupForm
    table: ir.Value
    ids: ir.Value
    output: ir.Value
    reason: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether it leaves the graph."""
        return not self.reason
