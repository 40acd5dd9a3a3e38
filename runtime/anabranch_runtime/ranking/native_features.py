"""Features and tensors of a plan as the native program takes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RaggedPlan,
    SinkPlan,
    TensorFill,
    ValueType,
    VocabularyPlan,
)
from anabranch_runtime.ranking.vocabulary_files import read_vocabulary

__all__ = ["NativeFeature", "NativeTensor", "native_feature", "native_tensor"]

_DIVISION: Final = "quotient_remainder"

Kind = Literal["none", "hash", "hashes", "vocabulary", "bucketize", "quotient_remainder"]


@dataclass(frozen=True, slots=True)
class NativeVocabulary:
    """A vocabulary whose values are at hand; see `VocabularyPlan`."""

    values: Sequence[int | str]
    first_id: int
    unknown: int | None


Transform = HashPlan | Sequence[HashPlan] | NativeVocabulary | BucketizePlan | MultiHashPlan


@dataclass(frozen=True, slots=True)
class NativeFeature:
    """One feature; what is not here is as in `FeaturePlan`.

    Attributes:
        width: values of a row that is not ragged.
        kind: what `transform` is.
        makes_keys: whether lookups read its keys.
    """

    name: str
    side: str
    type: ValueType
    width: int
    weighted: bool
    kind: Kind
    transform: Transform | None
    default: Sequence[int | float | str] | None
    ragged: RaggedPlan | None
    values: Sequence[SinkPlan]
    lengths: SinkPlan | None
    makes_keys: bool


@dataclass(frozen=True, slots=True)
class NativeTensor:
    """One dense input, as rows of `columns` numbers."""

    name: str
    datatype: str
    columns: int


def native_feature(plan: FeaturePlan) -> NativeFeature:
    """Return a feature, with what its vocabulary's file holds.

    Raises:
        Corrupt: the file of its vocabulary is not what the plan says.
        Unavailable: it cannot be read.
        ValueError: the plan contradicts itself.
    """
    kind, transform = _transform(plan)
    keys_each = len(transform) if isinstance(transform, list) else 1 + (kind == _DIVISION)
    if len(plan.keys) not in (0, keys_each):
        raise ValueError(
            f"feature {plan.name!r}: {len(plan.keys)} names of keys; expected {keys_each}"
        )
    return NativeFeature(
        name=plan.name,
        side=plan.side,
        type=plan.type,
        width=math.prod(plan.shape),
        weighted=plan.weighted,
        kind=kind,
        transform=transform,
        default=plan.default,
        ragged=plan.ragged,
        values=plan.values,
        lengths=plan.lengths,
        makes_keys=bool(plan.keys),
    )


def native_tensor(fill: TensorFill) -> NativeTensor:
    """Return a dense input."""
    return NativeTensor(fill.name, fill.datatype, math.prod(fill.shape))


def _transform(plan: FeaturePlan) -> tuple[Kind, Transform | None]:
    match plan.transform:
        case None:
            return "none", None
        case HashPlan() as one:
            return "hash", one
        case BucketizePlan() as buckets:
            return "bucketize", buckets
        case VocabularyPlan() as vocabulary:
            return "vocabulary", _vocabulary(plan.type, vocabulary)
        case MultiHashPlan(functions=()) as division:
            return _DIVISION, division
        case MultiHashPlan() as several:
            return "hashes", [
                HashPlan(function, several.num_buckets, several.seed)
                for function in several.functions
            ]


def _vocabulary(kind: ValueType, plan: VocabularyPlan) -> NativeVocabulary:
    values: Sequence[int | str] = plan.values
    if plan.file is not None:
        values = read_vocabulary(plan.file, kind)
    wanted = str if kind == "string" else int
    if not all(isinstance(value, wanted) for value in values) or len(set(values)) != len(values):
        raise ValueError(f"vocabulary: expected different values of type {kind}")
    return NativeVocabulary(values, plan.first_id, plan.unknown)
