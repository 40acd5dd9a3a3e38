"""Features: what callers of the ranking doors send, and how it becomes a graph input.

A feature is read raw (`type`), made into ids by at most one of `hash`, `vocabulary`, `bucketize`
and `multi_hash`, and written to the graph input of its name or to what `input` says.
"""

import math
import sys
from itertools import pairwise
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from anabranch_model_store.model_yaml.values import (
    Columns,
    Count,
    HashFunction,
    Index,
    Name,
    Positive,
    Side,
    Span,
    check_columns,
    check_one_of,
)
from anabranch_wire.document_fields import check_unique
from anabranch_wire.documents import Document
from anabranch_wire.names import check_relative_path

__all__ = [
    "Bucketize",
    "Feature",
    "FeatureHash",
    "MultiHash",
    "PackedInput",
    "Ragged",
    "Scalar",
    "Vocabulary",
    "is_of_type",
]

Scalar = int | float | str

_KINDS: Final[dict[str, tuple[type[Scalar], ...]]] = {
    "int64": (int,),
    "float32": (int, float),
    "string": (str,),
}


def is_of_type(value: Scalar, kind: Literal["int64", "float32", "string"]) -> bool:
    """Return whether a value of model.yaml may be a raw value of a feature."""
    return isinstance(value, _KINDS[kind])


class FeatureHash(Document, frozen=True, kw_only=True):
    """String or integer -> id by a hash of its UTF-8 bytes or decimal text.

    Attributes:
        function: name of the hash.
        num_buckets: the unsigned hash modulo this; 0 keeps all 64 bits as a signed key.
        seed: of functions that take one.
    """

    function: HashFunction
    num_buckets: Count
    seed: Count = 0

    def __post_init__(self) -> None:
        if self.seed and self.function == "farmhash_fingerprint64":
            raise ValueError("seed: farmhash_fingerprint64 takes none")


class Vocabulary(Document, frozen=True, kw_only=True):
    """String or integer -> id by its place in a list.

    Attributes:
        values: the list.
        file: or a file of the version with one value a line.
        first_id: id of the first value.
        unknown: id of a value that is not in the list, or `error`.
    """

    values: tuple[int | str, ...] | None = None
    file: str | None = None
    first_id: Index = 0
    unknown: int | Literal["error"] = "error"

    def __post_init__(self) -> None:
        check_one_of(self, "values", "file")
        if self.file is not None:
            check_relative_path(self.file)
        if self.values is not None:
            if not self.values:
                raise ValueError("values: expected at least one")
            if len({type(value) for value in self.values}) > 1:
                raise ValueError("values: found numbers and strings; expected one kind")
            check_unique(map(str, self.values), "values:")


class Bucketize(Document, frozen=True, kw_only=True):
    """Number -> id: how many boundaries are not above it.

    Attributes:
        boundaries: strictly increasing.
    """

    boundaries: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.boundaries:
            raise ValueError("boundaries: expected at least one")
        for low, high in pairwise(self.boundaries):
            if not low < high:
                raise ValueError(f"boundaries: {high} after {low}; expected increasing numbers")


class MultiHash(Document, frozen=True, kw_only=True):
    """One value -> a key in each of several tables, whose rows are combined.

    Attributes:
        method: quotient and remainder by `num_buckets`, or one hash function for each table.
        num_buckets: divisor, or number of buckets of each table.
        tables: table names in the order of the keys.
        combine: how the rows become one.
        functions: for `hashes`, as many as tables.
        seed: of functions that take one.
    """

    method: Literal["quotient_remainder", "hashes"]
    num_buckets: Positive
    tables: tuple[Name, ...]
    combine: Literal["sum", "multiply", "concat"]
    functions: tuple[HashFunction, ...] = ()
    seed: Count = 0

    def __post_init__(self) -> None:
        check_unique(self.tables, "tables:")
        if self.method == "quotient_remainder":
            if len(self.tables) != 2 or self.functions:
                raise ValueError("quotient_remainder: expected two tables and no functions")
        elif not self.functions or len(self.functions) != len(self.tables):
            raise ValueError(
                f"hashes: found {len(self.functions)} functions and {len(self.tables)} tables; "
                "expected one function for each table"
            )


class Ragged(Document, frozen=True, kw_only=True):
    """A variable number of values for each row: a bag, or a sequence padded into its input.

    Attributes:
        max_length: values of a row at most.
        keep: which values of a longer row stay.
        pad_to: length in the graph input, for a sequence.
        padding: what fills it up.
        lengths_input: graph input that takes the number of values of each row.
    """

    max_length: Positive
    keep: Literal["first", "last", "error"] = "error"
    pad_to: Positive | None = None
    padding: int | float | None = None
    lengths_input: Name | None = None

    def __post_init__(self) -> None:
        if self.pad_to is None:
            if self.padding is not None:
                raise ValueError("padding: needs pad_to")
        elif self.pad_to < self.max_length:
            raise ValueError(f"pad_to: {self.pad_to} is less than max_length {self.max_length}")


class PackedInput(Document, frozen=True, kw_only=True):
    """Columns of a graph input that carries several features side by side.

    Attributes:
        name: the graph input [N, F].
        columns: where the values go, half-open.
        length_column: where their number goes.
    """

    name: Name
    columns: Columns
    length_column: Index | None = None

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if self.length_column in range(*self.columns):
            raise ValueError("length_column: lies inside columns")


class Feature(Document, frozen=True, kw_only=True):
    """One raw feature of a ranking request.

    Attributes:
        name: as callers send it.
        side: sent once with the user, or once for each candidate.
        type: of the raw values.
        hash: makes ids of strings or integers.
        vocabulary: makes ids of strings or integers.
        bucketize: makes ids of numbers.
        multi_hash: makes several keys of each value.
        default: used when left out; a feature without one is required.
        shape: of a dense vector; () is one value for each row.
        ragged: for a variable number of values.
        weights: callers send a weight beside each value of a bag.
        input: graph input that it feeds; None is the one of its own name, or, by `multi_hash`,
            those called as its tables are.
    """

    name: Name
    side: Side
    type: Literal["int64", "float32", "string"]
    hash: FeatureHash | None = None
    vocabulary: Vocabulary | None = None
    bucketize: Bucketize | None = None
    multi_hash: MultiHash | None = None
    default: Scalar | tuple[Scalar, ...] | UnsetType = UNSET
    shape: tuple[Positive, ...] = ()
    ragged: Ragged | None = None
    weights: bool = False
    input: Name | PackedInput | None = None

    def __post_init__(self) -> None:
        check_one_of(self, "hash", "vocabulary", "bucketize", "multi_hash", required=False)
        self._check_transform()
        self._check_form()
        if self.default is not UNSET:
            self._check_default(self.default)
        if isinstance(self.input, PackedInput):
            self._check_packed(self.input)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where it writes: columns of graph inputs, all of them where it does not share one.

        The keys of `multi_hash` go to inputs called as its tables are, unless `input` says where.
        """
        if self.multi_hash is not None and self.input is None:
            return tuple(Span(table, 0, sys.maxsize, self.name) for table in self.multi_hash.tables)
        if isinstance(self.input, PackedInput):
            spans = [Span(self.input.name, *self.input.columns, self.name)]
            length = self.input.length_column
            if length is not None:
                spans.append(Span(self.input.name, length, length + 1, self.name))
        else:
            spans = [Span(self.input or self.name, 0, sys.maxsize, self.name)]
        return (*spans, *self.length_spans)

    @property
    def length_spans(self) -> tuple[Span, ...]:
        """Where the number of its values goes, beside columns; also where lookups read it."""
        if self.ragged is None or self.ragged.lengths_input is None:
            return ()
        return (Span(self.ragged.lengths_input, 0, sys.maxsize, self.name),)

    def _check_transform(self) -> None:
        if self.bucketize and self.type == "string":
            raise ValueError("bucketize: the type is string; expected int64 or float32")
        for name in ("hash", "vocabulary", "multi_hash"):
            if getattr(self, name) and self.type == "float32":
                raise ValueError(f"{name}: the type is float32; expected int64 or string")
        by_division = self.multi_hash and self.multi_hash.method == "quotient_remainder"
        if by_division and self.type != "int64":
            raise ValueError("multi_hash: quotient_remainder needs type int64")
        if self.vocabulary and self.vocabulary.values:
            wanted = str if self.type == "string" else int
            if not isinstance(self.vocabulary.values[0], wanted):
                raise ValueError(f"vocabulary.values: expected values of type {self.type}")

    def _check_form(self) -> None:
        if self.shape and self.type != "float32":
            raise ValueError(f"shape: the type is {self.type}; only float32 can be a dense vector")
        if self.shape and self.ragged:
            raise ValueError("found shape and ragged; expected one of them")
        if self.weights and (self.ragged is None or self.ragged.pad_to is not None):
            raise ValueError("weights: only a bag (ragged without pad_to) has them")
        makes_ids = self.type != "float32" or self.bucketize
        if self.ragged and self.ragged.pad_to is None and not makes_ids:
            raise ValueError("ragged: a float32 sequence needs pad_to; only ids can be a bag")

    def _check_default(self, default: Scalar | tuple[Scalar, ...]) -> None:
        wants_list = self.ragged is not None or bool(self.shape)
        if isinstance(default, tuple) != wants_list:
            raise ValueError(f"default: expected {'a list' if wants_list else 'one value'}")
        values = default if isinstance(default, tuple) else (default,)
        if not all(is_of_type(value, self.type) for value in values):
            raise ValueError(f"default: expected values of type {self.type}")
        if self.shape and len(values) != math.prod(self.shape):
            raise ValueError(f"default: {len(values)} values; expected {math.prod(self.shape)}")
        if self.ragged and len(values) > self.ragged.max_length:
            raise ValueError(
                f"default: {len(values)} values; max_length is {self.ragged.max_length}"
            )

    def _check_packed(self, packed: PackedInput) -> None:
        width = check_columns(packed.columns)
        if self.ragged:
            if self.ragged.pad_to is None:
                raise ValueError("input: a bag cannot be packed into columns; set ragged.pad_to")
            expected = self.ragged.pad_to
        else:
            expected = math.prod(self.shape)
            if self.multi_hash is not None:
                expected = len(self.multi_hash.tables)
            if packed.length_column is not None:
                raise ValueError("input.length_column: only a ragged feature has a length")
        if width != expected:
            raise ValueError(f"input.columns: {width} columns; the feature has {expected} values")
