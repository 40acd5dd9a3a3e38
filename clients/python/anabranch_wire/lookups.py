"""One lookup of a plan: where ids come from, how rows are pooled, where the result goes."""

from typing import Annotated, Literal

from msgspec import Meta

from anabranch_wire.document_fields import Count
from anabranch_wire.documents import Document
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_tensor_name

__all__ = ["Ids", "Lengths", "Lookup", "Offsets", "Output", "Side", "Values"]

Side = Literal["row", "user"]
Columns = tuple[Count, Count]


class Values(Document, frozen=True, kw_only=True):
    """Numbers taken from a graph input or from an output of the prelude.

    Attributes:
        input: its name.
        columns: half-open range of axis 1 of an [N, F] tensor; None takes the whole tensor.
    """

    input: str
    columns: Columns | None = None

    def __post_init__(self) -> None:
        check_tensor_name(self.input)
        if self.columns is not None and self.columns[0] >= self.columns[1]:
            raise InvalidInput(
                f"columns {list(self.columns)}: expected [begin, end] with begin < end"
            )


class Ids(Values, frozen=True, kw_only=True):
    """The ids to look up.

    Attributes:
        cast: `truncate` turns floats into int64 as ONNX Cast does; `none` expects integers.
        add: added to each id afterwards, to find the place of a field in a stacked table.
    """

    cast: Literal["none", "truncate"] = "none"
    add: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 0


class Lengths(Values, frozen=True, kw_only=True, tag_field="form", tag="lengths"):
    """Ids per row: [N] integers."""


class Offsets(Values, frozen=True, kw_only=True, tag_field="form", tag="offsets"):
    """Where each row's ids start: [N] or [N+1] integers."""


class Output(Document, frozen=True, kw_only=True):
    """Where a lookup writes.

    Attributes:
        buffer: index into the plan's buffers.
        column: first column of the buffer that it writes.
    """

    buffer: Count
    column: Count


class Lookup(Document, frozen=True, kw_only=True):
    """One feature of the lookup plan.

    Attributes:
        table: index into the plan's tables.
        side: whether it happens per row or once per user.
        ids: what is looked up.
        combiner: how the rows of a bag become one; `none` keeps them side by side.
        lengths: how flat ids are cut into rows; None where every row has `max_length` ids.
        weights: one factor per id; None where all are 1.
        max_length: ids per row at most.
        output: where the result goes.
        combine: how the result joins that of an earlier lookup in the same columns; None where the
            columns are its own.
    """

    table: Count
    side: Side
    ids: Ids
    combiner: Literal["none", "sum", "mean", "sqrtn", "max"]
    lengths: Lengths | Offsets | None = None
    weights: Values | None = None
    max_length: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1
    output: Output
    combine: Literal["sum", "multiply"] | None = None

    def columns(self, dim: int) -> int:
        """Return how many columns the result has, for rows of `dim` numbers."""
        return dim * self.max_length if self.combiner == "none" else dim
