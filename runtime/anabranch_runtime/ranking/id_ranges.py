"""Whether graph inputs hold the ids that transforms make: what could never be sent is found early.

Ids that come as they were sent may be beyond their input; those are faults of requests.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    HashPlan,
    MultiHashPlan,
    RankingPlan,
    VocabularyPlan,
)
from anabranch_wire.errors import Unavailable

__all__ = ["check_ids"]

_EXACT: Final[Mapping[str, range]] = {
    "FP16": range(-(2**11), 2**11 + 1),
    "FP32": range(-(2**24), 2**24 + 1),
    "FP64": range(-(2**53), 2**53 + 1),
    "INT32": range(-(2**31), 2**31),
    "INT64": range(-(2**63), 2**63),
}
"""Datatype -> the ids that an input holds, none of them rounded."""

Made = list[tuple[str, int]]
"""What of model.yaml makes an id, and that id."""


def check_ids(plan: RankingPlan) -> None:
    """Check that graph inputs hold every id that hashes, vocabularies and boundaries make.

    Args:
        plan: of a version. Files of long vocabularies are read.

    Raises:
        ValueError: one is beyond its input; names feature, setting, id and input.
        Unavailable: the file of a vocabulary cannot be read.
    """
    for feature in plan.features:
        if feature.transform is None:
            continue
        for key, sink in enumerate(feature.values):
            tensor = plan.tensors[sink.tensor]
            held = _EXACT.get(tensor.datatype)
            if held is None:
                continue
            for what, made in _made(feature.transform, key):
                if made not in held:
                    raise ValueError(
                        f"feature {feature.name!r}: {what} makes the id {made}; input "
                        f"{tensor.name!r} ({tensor.datatype}) holds ids from {held.start} to "
                        f"{held.stop - 1}"
                    )


def _made(transform: HashPlan | VocabularyPlan | BucketizePlan | MultiHashPlan, key: int) -> Made:
    """Return the ids farthest from zero that a transform makes as `key` of a value."""
    match transform:
        case HashPlan():
            return _hashed("hash", transform.num_buckets)
        case BucketizePlan():
            return [("bucketize.boundaries", len(transform.boundaries))]
        case MultiHashPlan(functions=()) if key == 0:  # the quotient of whatever is sent
            return []
        case MultiHashPlan():
            return _hashed("multi_hash", transform.num_buckets)
        case VocabularyPlan():
            last = transform.first_id + _size(transform) - 1
            made = [("vocabulary.first_id", transform.first_id), ("vocabulary", last)]
            if transform.unknown is not None:
                made.append(("vocabulary.unknown", transform.unknown))
            return made


def _hashed(what: str, num_buckets: int) -> Made:
    named = f"{what}.num_buckets {num_buckets}"
    return [(named, num_buckets - 1)] if num_buckets else [(named, -(2**63)), (named, 2**63 - 1)]


def _size(vocabulary: VocabularyPlan) -> int:
    if vocabulary.file is None:
        return len(vocabulary.values)
    path = Path(vocabulary.file)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Unavailable(f"vocabulary {path.name!r} cannot be read: {error.strerror}") from error
    return text.count(b"\n") + (not text.endswith(b"\n"))
