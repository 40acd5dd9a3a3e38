"""plan.json: how a version is looked up and run. The optimiser writes it, the runtime reads it.

A plan says which table rows become which columns of which buffer, what else the dense graph takes,
and where each original weight went. Indices always point to something: that is checked here, once.
"""

from itertools import pairwise
from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch_wire.document_fields import Count, Digest, Dim, RowType, Sha256, check_unique
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Lookup, Side
from anabranch_wire.missing import Missing, Vector, check_key
from anabranch_wire.names import check_relative_path, check_tensor_name
from anabranch_wire.tensors import Datatype, TensorSpec
from anabranch_wire.weight_targets import ToTable, WeightTarget

__all__ = [
    "FILE_NAME",
    "MAX_ROWS",
    "Buffer",
    "Capacity",
    "Graphs",
    "Plan",
    "PlanInput",
    "PlanTable",
    "Source",
    "decode",
    "encode",
]

FILE_NAME: Final = "plan.json"
MAX_ROWS: Final = 2**31 - 1
"""Rows of a table at most, those that deltas add counted: what a row number can tell apart."""


class Source(Document, frozen=True, kw_only=True):
    """The ONNX file that the plan was made from."""

    file: str
    sha256: Sha256

    def __post_init__(self) -> None:
        check_relative_path(self.file)


class Graphs(Document, frozen=True, kw_only=True):
    """Files with the parts of the original graph.

    Attributes:
        dense: what runs per row, on the executor.
        prelude: id arithmetic that runs on the CPU before the lookups.
        user: what runs once per user.
    """

    dense: str
    prelude: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        for path in (self.dense, self.prelude, self.user):
            if path is not None:
                check_relative_path(path)


class Capacity(Document, frozen=True, kw_only=True):
    """Room that a store gives a table, for what deltas bring.

    Attributes:
        arena_rows: rows beside those of the table's file.
        keys: distinct keys at most, those of the file counted.
        most_keys: what `keys` may become where a store gives it more room later.
    """

    arena_rows: Annotated[int, Meta(ge=1, le=MAX_ROWS)]
    keys: Annotated[int, Meta(ge=0, le=MAX_ROWS)]
    most_keys: Annotated[int, Meta(ge=0, le=MAX_ROWS)] = MAX_ROWS


class PlanTable(Document, frozen=True, kw_only=True):
    """A table that lookups read.

    Attributes:
        name: the ONNX initializer's, or that of a table file.
        file: where its rows are.
        rows: number of keys.
        dim: numbers per row.
        dtype: of the numbers as stored.
        keys: `dense_id`: keys are 0..rows-1; `hashed`: any 64-bit keys.
        missing: what an absent key yields.
        padding_key: signed or unsigned 64-bit key that contributes nothing to a bag and is not
            counted in its mean; None where every key counts.
        capacity: None where whoever loads the plan chooses.
    """

    name: str
    file: str
    rows: Count
    dim: Dim
    dtype: RowType
    keys: Literal["dense_id", "hashed"]
    missing: Missing
    padding_key: int | None = None
    capacity: Capacity | None = None

    def __post_init__(self) -> None:
        check_tensor_name(self.name)
        check_relative_path(self.file)
        if self.padding_key is not None:
            check_key("padding_key", self.padding_key)
        if self.capacity is not None and self.capacity.keys < self.rows:
            raise InvalidInput(f"capacity.keys {self.capacity.keys}: the table has {self.rows}")
        if isinstance(self.missing, Vector) and len(self.missing.value) != self.dim:
            raise InvalidInput(
                f"missing.value has {len(self.missing.value)} numbers, rows have {self.dim}"
            )


class Buffer(Document, frozen=True, kw_only=True):
    """An input of the dense or user graph that lookups fill: [N or users, columns]."""

    name: str
    side: Side
    dtype: Literal["f32", "f16"]
    columns: Annotated[int, Meta(ge=1, le=2**31 - 1)]

    def __post_init__(self) -> None:
        check_tensor_name(self.name)


class PlanInput(Document, frozen=True, kw_only=True):
    """An input of the original graph: what callers go on to send.

    Attributes:
        name: the graph's own.
        datatype: of the Open Inference Protocol.
        shape: sizes of the axes; -1 where one varies.
        symbols: what the graph calls each axis that varies: axes with one name have one size. None
            where an axis has no name.
    """

    name: str
    datatype: Datatype
    shape: tuple[Annotated[int, Meta(ge=-1, le=2**63 - 1)], ...]
    symbols: tuple[str | None, ...]

    def __post_init__(self) -> None:
        check_tensor_name(self.name)
        if len(self.symbols) != len(self.shape):
            raise InvalidInput(
                f"input {self.name!r} has {len(self.shape)} axes and names for {len(self.symbols)}"
            )

    @property
    def spec(self) -> TensorSpec:
        """The same without the names of its axes."""
        return TensorSpec(self.name, self.datatype, self.shape)


class Plan(Document, frozen=True, kw_only=True):
    """The compiled form of one version.

    Attributes:
        source: what it was made from.
        structure_hash: of the graph without its weights.
        graphs: the files to run.
        tables: what lookups read.
        buffers: what lookups write.
        lookups: one per feature.
        pass_through: graph inputs that the dense graph takes as they come.
        weights: original initializer name -> where it went; what is missing here cannot be updated.
        inputs: of the original graph, in its order; empty where that graph is there to be asked.
        user_inputs: those that the user graph was split off by: it has a row for each user.
    """

    format: Literal[1]
    source: Source
    structure_hash: Digest
    graphs: Graphs
    tables: tuple[PlanTable, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    pass_through: tuple[str, ...] = ()
    weights: dict[str, tuple[WeightTarget, ...]]
    inputs: tuple[PlanInput, ...] = ()
    user_inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.pass_through, *self.weights, *self.user_inputs):
            check_tensor_name(name)
        check_unique((table.name for table in self.tables), "table")
        check_unique((*(buffer.name for buffer in self.buffers), *self.pass_through), "dense input")
        self._check_inputs()
        self._check_lookups()
        for name, targets in self.weights.items():
            for target in targets:
                if isinstance(target, ToTable) and target.index >= len(self.tables):
                    raise InvalidInput(f"weights[{name!r}]: there is no table {target.index}")

    def _check_inputs(self) -> None:
        """Check that what is said of inputs fits what is said of graphs."""
        names = [one.name for one in self.inputs]
        check_unique(names, "input")
        check_unique(self.user_inputs, "user input")
        unknown = [name for name in self.user_inputs if names and name not in names]
        if unknown:
            raise InvalidInput(f"user_inputs: there is no input {unknown[0]!r}")
        if self.user_inputs and self.graphs.user is None:
            raise InvalidInput("user_inputs: there is no user graph that they are for")

    def _check_lookups(self) -> None:
        """Check that each lookup reads a table and writes columns of its own, on its side.

        One that combines writes exactly the columns of an earlier one that does not.
        """
        taken: dict[int, list[tuple[int, int, int]]] = {}
        for index, lookup in enumerate(self.lookups):
            where = f"lookups[{index}]"
            output = lookup.output
            if lookup.table >= len(self.tables):
                raise InvalidInput(f"{where}.table: there is no table {lookup.table}")
            if output.buffer >= len(self.buffers):
                raise InvalidInput(f"{where}.output.buffer: there is no buffer {output.buffer}")
            buffer = self.buffers[output.buffer]
            end = output.column + lookup.columns(self.tables[lookup.table].dim)
            if buffer.side != lookup.side:
                raise InvalidInput(f"{where}: side {lookup.side!r} writes to {buffer.name!r}")
            if end > buffer.columns:
                raise InvalidInput(
                    f"{where}: writes columns {output.column} to {end}, {buffer.name!r} has "
                    f"{buffer.columns}"
                )
            spans = taken.setdefault(output.buffer, [])
            if lookup.combine is None:
                spans.append((output.column, end, index))
            elif not any(span[:2] == (output.column, end) for span in spans):
                raise InvalidInput(
                    f"{where}.combine: no earlier lookup writes columns {output.column} to {end} "
                    f"of {buffer.name!r}"
                )
        for spans in taken.values():
            spans.sort()
            for (_, end, first), (begin, _, second) in pairwise(spans):
                if begin < end:
                    raise InvalidInput(f"lookups[{first}] and lookups[{second}] write one column")


def decode(data: bytes) -> Plan:
    """Read a plan.

    Raises:
        Unsupported: its format is newer than 1.
        InvalidInput: it is malformed; the message names the place.
    """
    return decode_json(data, Plan, FILE_NAME)


def encode(plan: Plan) -> bytes:
    """Write a plan.

    Raises:
        InvalidInput: it holds what `decode` would refuse.
    """
    return encode_json(plan, FILE_NAME)
