"""Kinds of values that several parts of model.yaml share, with the checks they all need."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from anabranch_wire.documents import Document

__all__ = [
    "Columns",
    "Count",
    "HashFunction",
    "Index",
    "Name",
    "Positive",
    "Side",
    "Span",
    "check_columns",
    "check_disjoint",
    "check_one_of",
]

Name = Annotated[str, Meta(min_length=1, max_length=512)]
"""Name of a tensor, table or feature; never used as the name of a file."""

Index = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Columns = tuple[Index, Index]
"""Half-open range of columns: first, and one past the last."""

Side = Literal["user", "candidate"]
HashFunction = Literal["farmhash_fingerprint64", "xxh64", "murmur3_x64_128_low"]


class Span(NamedTuple):
    """Columns of a graph input that somebody writes to.

    Attributes:
        input: name of the graph input.
        begin: first column.
        end: one past the last column.
        owner: who writes there.
    """

    input: str
    begin: int
    end: int
    owner: str


def check_columns(columns: Columns) -> int:
    """Return the number of columns.

    Raises:
        ValueError: the range is empty or runs backwards.
    """
    begin, end = columns
    if end <= begin:
        raise ValueError(f"columns: found [{begin}, {end}]; expected [first, one past the last]")
    return end - begin


def check_one_of(document: Document, *names: str, required: bool = True) -> None:
    """Check that exactly one of the fields `names` is given (at most one, if not `required`).

    Raises:
        ValueError: several are given, or none is.
    """
    given = [name for name in names if getattr(document, name) is not None]
    if len(given) > 1:
        raise ValueError(f"found {' and '.join(given)}; expected one of {', '.join(names)}")
    if required and not given:
        raise ValueError(f"expected one of {', '.join(names)}")


def check_disjoint(what: str, spans: Iterable[Span]) -> None:
    """Check that nobody writes where somebody else does.

    Raises:
        ValueError: two spans of one input overlap.
    """
    for left, right in pairwise(sorted(spans)):
        if left.input == right.input and right.begin < left.end:
            raise ValueError(
                f"{what} {left.owner!r} and {right.owner!r} both write to input {left.input!r}"
            )
