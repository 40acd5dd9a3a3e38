"""Bags: lookups whose rows are only there to become one, and how they become it."""

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

__all__ = ["Bag", "Combiner"]

Combiner = Literal["sum", "mean", "max"]
"""How rows become one: of those that a plan knows, what graphs of exporters compute."""


@dataclass(frozen=True, slots=True, eq=False)
class Bag:
    """Rows of one lookup and the value that they become, which is proven.

    Attributes:
        output: [rows, *shape], what takes the place of the rows of the table.
        shape: of one row of it; its product is that of a row of the table.
        combiner: how the rows of a bag become one.
        length: rows of a bag, the same for each row of the batch; 0 where that varies.
        weights: float32 [rows, length] of the graph, a factor for each row of a bag; made of
            inputs and constants alone. Where lengths vary, an input [ids]. None: all are 1.
        ids: where lengths vary, the input that holds the ids of all bags; else "".
        offsets: and the one that says where each starts; else "".
    """

    output: ir.Value
    shape: tuple[int, ...]
    combiner: Combiner
    length: int
    weights: ir.Value | None
    ids: str = ""
    offsets: str = ""
