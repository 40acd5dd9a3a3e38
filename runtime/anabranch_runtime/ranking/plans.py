"""What the ranking door of a version does, compiled from its model.yaml and its graph.

A plan is immutable and crosses processes as msgpack. Everything in it was checked when it was made:
features fill every dense input of the graph and every looked-up feature, each once.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = [
    "BucketizePlan",
    "CalibrationPlan",
    "FeaturePlan",
    "HashPlan",
    "ItemTablePlan",
    "MultiHashPlan",
    "RaggedPlan",
    "RankingPlan",
    "SequencePlan",
    "SinkPlan",
    "TensorFill",
    "VocabularyPlan",
]

HashFunction = Literal["farmhash_fingerprint64", "xxh64", "murmur3_x64_128_low"]
Side = Literal["user", "candidate"]
ValueType = Literal["int64", "float32", "string"]


class HashPlan(msgspec.Struct, frozen=True, tag="hash"):
    """A hash; see `anabranch_model_store.model_yaml.FeatureHash`."""

    function: HashFunction
    num_buckets: int
    seed: int = 0


class VocabularyPlan(msgspec.Struct, frozen=True, tag="vocabulary"):
    """Place in a list.

    Attributes:
        values: the list; empty where it is in a file.
        file: text file in UTF-8, which workers read: a value a line, all of them different, each
            line ended by a line feed alone; integers in decimal. None where `values` are here.
        first_id: id of the first value.
        unknown: id of what is not in it; None refuses it.
    """

    values: tuple[int | str, ...]
    file: str | None
    first_id: int
    unknown: int | None


class BucketizePlan(msgspec.Struct, frozen=True, tag="bucketize"):
    """How many of these rising numbers are not above a value."""

    boundaries: tuple[float, ...]


class MultiHashPlan(msgspec.Struct, frozen=True, tag="multi_hash"):
    """Several keys of one value: by quotient and remainder where `functions` is empty.

    Attributes:
        num_buckets: divisor, or buckets of each hash.
        functions: one for each key.
        seed: of all functions that take one.
    """

    num_buckets: int
    functions: tuple[HashFunction, ...]
    seed: int


class RaggedPlan(msgspec.Struct, frozen=True):
    """A variable number of values; see `anabranch_model_store.model_yaml.Ragged`."""

    max_length: int
    keep: Literal["first", "last", "error"]
    pad_to: int | None
    padding: float


class SinkPlan(msgspec.Struct, frozen=True):
    """Columns of `RankingPlan.tensors[tensor]`, from `column` on."""

    tensor: int
    column: int


class FeaturePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One feature.

    Attributes:
        name: as callers send it.
        side: sent once, or for each candidate.
        type: of raw values.
        shape: of a dense vector; () is one value.
        transform: makes keys or ids; None takes the numbers as they are.
        default: raw values of one row that stand in for what was left out; None: it is required.
        ragged: None where every row has as many values.
        weighted: whether values may have weights.
        values: where they go, one for each key of a value; none where lookups read them, under
            the names in `keys`.
        lengths: where the number of values of a row goes, if anywhere.
        keys: names of the looked-up features that its keys are; one, but for several hashes.
    """

    name: str
    side: Side
    type: ValueType
    shape: tuple[int, ...] = ()
    transform: HashPlan | VocabularyPlan | BucketizePlan | MultiHashPlan | None = None
    default: tuple[int | float | str, ...] | None = None
    ragged: RaggedPlan | None = None
    weighted: bool = False
    values: tuple[SinkPlan, ...] = ()
    lengths: SinkPlan | None = None
    keys: tuple[str, ...] = ()


class TensorFill(msgspec.Struct, frozen=True):
    """A dense input that features fill.

    Attributes:
        name: of the graph's input.
        datatype: of it, as the Open Inference Protocol names it.
        shape: of one row.
        once: whether one row of a user may be sent for all rows (`user_inputs`).
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    once: bool


class SequencePlan(msgspec.Struct, frozen=True):
    """A sequence of the user that is filled with a value of the item table for each of his ids.

    Attributes:
        feature: that is filled; ragged.
        ids: the user's ragged feature that holds ids.
        column: of the item table's file, with one value an item.
        missing: raw value that stands in where the table has none; None: that is a fault.
    """

    feature: str
    ids: str
    column: str
    missing: int | float | str | None = None


class ItemTablePlan(msgspec.Struct, frozen=True):
    """Features of candidates by id.

    Attributes:
        path: Arrow IPC file in the cache, which workers map; see docs/formats.md.
        columns: feature -> column of that file.
        sequences: of users, filled by the ids in another one.
        bytes: of the file: in memory once, whatever the number of workers.
    """

    path: str
    columns: Mapping[str, str]
    sequences: tuple[SequencePlan, ...] = ()
    bytes: int = 0


class CalibrationPlan(msgspec.Struct, frozen=True):
    """Correction of one head; exactly one is given.

    Attributes:
        negative_sampling: w of p / (p + (1 - p) / w).
        platt: a, b of 1 / (1 + exp(-(a * logit(p) + b))), with p no nearer to 0 and 1 than 1e-7.
        isotonic_x: rising; with `isotonic_y` the points that are joined by straight lines.
        isotonic_y: never falling.
        logits: whether the head's numbers are logit(p) already; with `platt` alone.
    """

    negative_sampling: float | None = None
    platt: tuple[float, float] | None = None
    isotonic_x: tuple[float, ...] = ()
    isotonic_y: tuple[float, ...] = ()
    logits: bool = False


class RankingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything.

    Attributes:
        features: in the order of model.yaml.
        tensors: dense inputs that they fill.
        id: the candidate feature that answers echo.
        heads: names of outputs that the score is made of, in the order of their numbers.
        weights: one for each head: factors of a sum, or exponents of a product.
        formula: `head` is the only head as it is.
        descending: which end comes first.
        report_bad: whether candidates at fault are reported, and the rest ranked.
        routing_key: user feature that is the routing key of requests that name none.
        item_table: completes candidates that are sent as ids alone.
        calibration: head -> correction; of every output that is asked for, not of the score alone.
    """

    features: tuple[FeaturePlan, ...]
    tensors: tuple[TensorFill, ...]
    id: str
    heads: tuple[str, ...]
    weights: tuple[float, ...]
    formula: Literal["head", "weighted_sum", "product_of_powers"]
    descending: bool = True
    report_bad: bool = False
    routing_key: str | None = None
    item_table: ItemTablePlan | None = None
    calibration: Mapping[str, CalibrationPlan] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files that workers read, and map."""
        transforms = [feature.transform for feature in self.features]
        found = [one.file for one in transforms if isinstance(one, VocabularyPlan) and one.file]
        return (*found, *(() if self.item_table is None else (self.item_table.path,)))
