"""What becomes of a model: graphs to run, tables to look up, and how they fit together."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from anabranch_wire.lookups import Lookup
from anabranch_wire.plan import Buffer
from anabranch_wire.tensors import TensorSpec
from anabranch_wire.weight_targets import WeightTarget

__all__ = ["LookupVerdict", "Optimized", "TableSource"]


@dataclass(frozen=True, slots=True, eq=False)
class TableSource:
    """A table that left the graph.

    Attributes:
        name: of the ONNX initializer.
        tensor: [rows, dim], f32, f16, bf16 or f64 as the model has it; mapped, not read, where it
            is external.
    """

    name: str
    tensor: ir.TensorProtocol

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.tensor.shape.numpy()[0]

    @property
    def dim(self) -> int:
        """Numbers of a row."""
        return self.tensor.shape.numpy()[1]


@dataclass(frozen=True, slots=True)
class LookupVerdict:
    """One lookup of the original, for the report.

    Attributes:
        node: its name, or that of its output where it has none.
        table: name of the initializer.
        rows: of the table.
        dim: of the table.
        ids: where ids come from, in words: `X[3:4]`, `item_id + 100`, `prelude: ...`.
        reason: "" where it was cut; else why it stays and what to change.
    """

    node: str
    table: str
    rows: int
    dim: int
    ids: str
    reason: str

    @property
    def cut(self) -> bool:
        """Whether it left the graph."""
        return not self.reason


@dataclass(frozen=True, slots=True, eq=False)
class Optimized:
    """An optimised model; `plan.json` and the files of a version are made from it.

    Graph inputs that a caller sends keep their names and types. Each buffer of `buffers` is an
    input of the dense graph, [N, columns] (of the user graph: [users, columns]).

    Attributes:
        inputs: of the original, what callers go on to send.
        outputs: of the original.
        dense: takes `pass_through`, then buffers, then, with a user side, the outputs of `user` and
            `ab_user_index` int64 [N].
        prelude: makes ids that the plan cannot say; takes inputs of the original, gives int64
            [N, ids]; None where there are none.
        user: runs once per user on user inputs and user buffers; None without a user side.
        tables: that lookups read, in the order of the plan.
        buffers: that lookups fill.
        lookups: one for each run of ids.
        pass_through: inputs of the original that the dense graph takes as they come.
        weights: initializer of the original -> where it went. What is missing cannot be updated.
        verdicts: every lookup that was found.
        user_inputs: inputs that may be sent once per request, proven or declared.
        structure_hash: `sha256:...` over topology, shapes, dtypes and options.
        notes: what else a modeller should know, in words.
        reduced_layers: layers that compute with fewer bits than the original's.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dense: ir.Model
    prelude: ir.Model | None
    user: ir.Model | None
    tables: tuple[TableSource, ...]
    buffers: tuple[Buffer, ...]
    lookups: tuple[Lookup, ...]
    pass_through: tuple[str, ...]
    weights: Mapping[str, tuple[WeightTarget, ...]]
    verdicts: tuple[LookupVerdict, ...]
    user_inputs: tuple[str, ...]
    structure_hash: str
    notes: tuple[str, ...]
    reduced_layers: int = 0
