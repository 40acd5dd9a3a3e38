"""What a model's owner says about its optimisation: `optimize` of model.yaml, and its inputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from anabranch_graph_opt.row_axes import InputAxis

__all__ = ["DensePrecision", "OptimizeOptions", "RowPrecision"]

RowPrecision = Literal["f32", "f16", "bf16", "int8"]
DensePrecision = Literal["f32", "int8", "int8_dynamic", "f16", "bf16"]


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """How a model is optimised.

    Attributes:
        min_table_bytes: smaller tables stay in the dense graph.
        user_inputs: inputs of which one row may stand for all rows of a request; "auto" finds them
            by data flow; empty: none.
        user_once: whether what depends on those alone is computed once per user.
        axes: what axis 0 of inputs counts; by default rows, where its size is symbolic.
        rows: table name -> how its rows are stored; f32 where it is not named.
        dense: how the dense graph computes.
    """

    min_table_bytes: int = 65536
    user_inputs: tuple[str, ...] | Literal["auto"] = ()
    user_once: bool = True
    axes: Mapping[str, InputAxis] = field(default_factory=lambda: MappingProxyType({}))
    rows: Mapping[str, RowPrecision] = field(default_factory=lambda: MappingProxyType({}))
    dense: DensePrecision = "f32"
