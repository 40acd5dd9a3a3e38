"""report.json: what became of a model, and why. Made beside a plan, for people and for status."""

from typing import Final, Literal

from anabranch_wire.document_fields import Count, Digest
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.tensors import Datatype

__all__ = [
    "FILE_NAME",
    "PAGE_NAME",
    "GraphRole",
    "Place",
    "Report",
    "ReportedBuffer",
    "ReportedGraph",
    "ReportedInput",
    "ReportedLookup",
    "ReportedParity",
    "ReportedTable",
    "decode",
    "encode",
]

FILE_NAME: Final = "report.json"
PAGE_NAME: Final = "report.html"

GraphRole = Literal["whole", "prelude", "user", "dense"]
"""Part of the original: all of it, what makes ids, what runs once per user, what runs per row."""
Place = Literal["lookups", "prelude", "user", "dense"]
"""Where an input goes."""


class ReportedLookup(Document, frozen=True, kw_only=True):
    """A lookup of the original.

    Attributes:
        node: its name, or that of its output where it has none.
        table: name of the initializer.
        rows: of the table.
        dim: of the table.
        bytes: of the table, in the model as it was exported.
        ids: where ids come from, in words.
        cut: whether it left the graph.
        reason: why it stays, and what to change in the export; "" where it was cut.
    """

    node: str
    table: str
    rows: Count
    dim: Count
    bytes: Count
    ids: str
    cut: bool
    reason: str


class ReportedTable(Document, frozen=True, kw_only=True):
    """A table that went to the store.

    Attributes:
        name: of the initializer.
        rows: of it.
        dim: of it.
        dtype: of the numbers as stored.
        bytes: of its numbers as stored.
        lookups: how many read it.
    """

    name: str
    rows: Count
    dim: Count
    dtype: str
    bytes: Count
    lookups: Count


class ReportedBuffer(Document, frozen=True, kw_only=True):
    """What lookups hand to a graph.

    Attributes:
        name: input of the graph.
        side: a row of it for each row, or for each user or request.
        dtype: of its numbers.
        columns: numbers of a row.
    """

    name: str
    side: str
    dtype: str
    columns: Count


class ReportedGraph(Document, frozen=True, kw_only=True):
    """A graph that runs.

    Attributes:
        role: which part of the original it is.
        file: in the version folder.
        nodes: operators, those of inner graphs counted.
        bytes: of its file, and of weights beside it.
        inputs: names.
        outputs: names.
    """

    role: GraphRole
    file: str
    nodes: Count
    bytes: Count
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class ReportedInput(Document, frozen=True, kw_only=True):
    """An input of the original.

    Attributes:
        name: of it.
        datatype: of it.
        shape: -1 where a size varies.
        is_user: whether it holds the user, of whom things are computed once.
        goes: what reads it.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    is_user: bool
    goes: tuple[Place, ...]


class ReportedParity(Document, frozen=True, kw_only=True):
    """What the comparison with the original gave.

    Attributes:
        max_abs_diff: the largest difference of any number.
        cases: batches that were compared; 0 where nothing was changed.
        refused: of those, batches that both refuse.
        rank_agreement: lowest share of pairs of rows that keep their order.
        budget_max_abs_diff: that was allowed.
        budget_rank_agreement: that was asked for.
    """

    max_abs_diff: float
    cases: Count
    refused: Count = 0
    rank_agreement: float = 1.0
    budget_max_abs_diff: float
    budget_rank_agreement: float


class Report(Document, frozen=True, kw_only=True):
    """What became of a model.

    Attributes:
        model: name of it.
        lookups: all that were found.
        parity: what the comparison gave.
        structure_hash: of the graph without its weights.
        seconds: that it took.
        peak_bytes: most memory that the process had meanwhile.
        inputs: of the original.
        tables: in the store.
        buffers: that lookups fill.
        graphs: that run.
        notes: what else a modeller should know.
    """

    format: Literal[1] = 1
    model: str
    lookups: tuple[ReportedLookup, ...]
    parity: ReportedParity
    structure_hash: Digest | None
    seconds: float
    peak_bytes: Count
    inputs: tuple[ReportedInput, ...]
    tables: tuple[ReportedTable, ...]
    buffers: tuple[ReportedBuffer, ...]
    graphs: tuple[ReportedGraph, ...]
    notes: tuple[str, ...]

    @property
    def cut(self) -> tuple[ReportedLookup, ...]:
        """Lookups that left the graph."""
        return tuple(lookup for lookup in self.lookups if lookup.cut)

    @property
    def left(self) -> tuple[ReportedLookup, ...]:
        """Lookups that stay in the graph."""
        return tuple(lookup for lookup in self.lookups if not lookup.cut)


def decode(data: bytes) -> Report:
    """Read a report.

    Raises:
        Unsupported: its format is newer than 1.
        InvalidInput: it is malformed; the message names the place.
    """
    return decode_json(data, Report, FILE_NAME)


def encode(report: Report) -> bytes:
    """Write a report.

    Raises:
        InvalidInput: it holds what `decode` would refuse.
    """
    return encode_json(report, FILE_NAME)
