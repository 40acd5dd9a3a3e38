"""Tables, the lookups that the server does for the graph, and item tables for candidates by id."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from anabranch_model_store.model_yaml.item_sequences import ItemSequence
from anabranch_model_store.model_yaml.values import (
    Columns,
    Name,
    Positive,
    check_columns,
)
from anabranch_wire.document_fields import check_unique
from anabranch_wire.documents import Document
from anabranch_wire.missing import Missing
from anabranch_wire.names import check_relative_path

__all__ = [
    "Capacity",
    "ItemTable",
    "Lookup",
    "LookupOutput",
    "TableMeaning",
]

MissingWord = Literal["original", "zeros", "error"]
"""A policy for missing keys that has no value of its own may be written as a word."""


class Capacity(Document, frozen=True, kw_only=True):
    """Room for rows that deltas insert.

    Attributes:
        reserve: share of the rows that may come on top; None is what the server is set to.
        max_rows: rows at most.
    """

    reserve: Annotated[float, Meta(ge=0)] | None = None
    max_rows: Positive = 100_000_000


class TableMeaning(Document, frozen=True, kw_only=True):
    """What one embedding table means.

    Attributes:
        alias: further names that deltas may use.
        keys: row numbers, or any 64-bit keys; `auto` is what the table came with.
        rows: number format in the store.
        missing: what a key without a row means; None is the default of where the table came from.
        padding_key: a key that contributes nothing to a bag and is not counted in its mean.
        capacity: room for inserts.
    """

    alias: tuple[Name, ...] = ()
    keys: Literal["auto", "dense_id", "hashed"] = "auto"
    rows: Literal["f32", "f16", "bf16", "int8"] = "f32"
    missing: MissingWord | Missing | None = None
    padding_key: int | None = None
    capacity: Capacity = msgspec.field(default_factory=Capacity)

    def __post_init__(self) -> None:
        check_unique(self.alias, "alias:")
        if self.padding_key is not None and not -(2**63) <= self.padding_key < 2**64:
            raise ValueError(f"padding_key: {self.padding_key}; expected a 64-bit integer")

    @property
    def missing_policy(self) -> str | None:
        """Name of the policy for missing keys; None where none is stated."""
        if self.missing is None or isinstance(self.missing, str):
            return self.missing
        return str(self.missing.__struct_config__.tag)


class LookupOutput(Document, frozen=True, kw_only=True):
    """Columns of the graph input that a lookup fills.

    Attributes:
        input: name of the graph input.
        columns: half-open.
    """

    input: Name
    columns: Columns

    def __post_init__(self) -> None:
        check_columns(self.columns)


class Lookup(Document, frozen=True, kw_only=True):
    """A lookup that no node of the graph does: feature -> table -> graph input.

    Attributes:
        feature: where the keys come from.
        table: where the rows come from.
        combiner: how the rows of a bag become one; `none` keeps them side by side.
        output: where the result goes.
    """

    feature: Name
    table: Name
    combiner: Literal["sum", "mean", "sqrtn", "max", "none"] = "none"
    output: LookupOutput


class ItemTable(Document, frozen=True, kw_only=True):
    """Features of candidates that are sent as ids alone.

    Attributes:
        file: a Parquet file of the version.
        key: its column of ids.
        columns: feature -> column.
        sequences: feature of the user -> what fills it, where he sends ids of items.
    """

    file: str
    key: Name
    columns: Mapping[Name, Name] = msgspec.field(default_factory=dict)
    sequences: Mapping[Name, ItemSequence] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_relative_path(self.file)
