"""Ids that transforms make, and inputs that do not hold them."""

import re
from pathlib import Path

import pytest

from anabranch_runtime.ranking.id_ranges import check_ids
from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
    VocabularyPlan,
)
from anabranch_testing.ranked_models import ranked_plan
from anabranch_wire.errors import Unavailable
from anabranch_wire.tensors import Datatype

MOST: dict[Datatype, int] = {
    "FP16": 2**11,
    "FP32": 2**24,
    "FP64": 2**53,
    "INT32": 2**31 - 1,
    "INT64": 2**63 - 1,
}
LEAST: dict[Datatype, int] = {"FP16": -(2**11), "FP32": -(2**24), "INT32": -(2**31)}

Transform = HashPlan | VocabularyPlan | BucketizePlan | MultiHashPlan | None


def plan_of(transform: Transform, datatype: Datatype, *, keys: int = 1) -> RankingPlan:
    feature = FeaturePlan(
        name="f",
        side="candidate",
        type="int64",
        transform=transform,
        values=tuple(SinkPlan(0, column) for column in range(keys)),
    )
    tensor = TensorFill("x", datatype, (keys,), once=False)
    return ranked_plan(features=(feature,), tensors=(tensor,), id="f")


@pytest.mark.parametrize("datatype", MOST)
def test_the_largest_id_is_held_and_the_next_is_not(datatype: Datatype) -> None:
    most = MOST[datatype]
    held: list[tuple[Transform, int]] = [
        (None, 1),
        (VocabularyPlan((1, 2), None, most - 1, 0), 1),
        (VocabularyPlan((1,), None, 0, most), 1),
        (VocabularyPlan((1,), None, 0, None), 1),
        (HashPlan("xxh64", min(most + 1, 2**63 - 1), 0), 1),
        (MultiHashPlan(min(most + 1, 2**63 - 1), (), 0), 2),
        (MultiHashPlan(min(most + 1, 2**63 - 1), ("xxh64", "xxh64"), 0), 2),
    ]
    for transform, keys in held:
        check_ids(plan_of(transform, datatype, keys=keys))

    beyond: list[tuple[str, Transform, int]] = [
        ("vocabulary", VocabularyPlan((1, 2), None, most, 0), 1),
        ("vocabulary.first_id", VocabularyPlan((1,), None, most + 1, 0), 1),
        ("vocabulary.unknown", VocabularyPlan((1,), None, 0, most + 1), 1),
    ]
    if datatype != "INT64":
        buckets = most + 2
        beyond += [
            (f"hash.num_buckets {buckets}", HashPlan("xxh64", buckets, 0), 1),
            (f"multi_hash.num_buckets {buckets}", MultiHashPlan(buckets, (), 0), 2),
            (f"multi_hash.num_buckets {buckets}", MultiHashPlan(buckets, ("xxh64",) * 2, 0), 2),
        ]
    for what, transform, keys in beyond:
        words = f"feature 'f': {what} makes the id {most + 1}; input 'x' ({datatype}) holds ids "
        with pytest.raises(ValueError, match="^" + re.escape(words)):
            check_ids(plan_of(transform, datatype, keys=keys))


def test_hashes_of_64_bits_go_into_int64_alone() -> None:
    whole = HashPlan("xxh64", 0, 0)
    check_ids(plan_of(whole, "INT64"))
    for datatype in set(MOST) - {"INT64"}:
        with pytest.raises(
            ValueError, match=r"hash\.num_buckets 0 makes the id -9223372036854775808; "
        ):
            check_ids(plan_of(whole, datatype))


@pytest.mark.parametrize("datatype", LEAST)
def test_ids_of_what_is_unknown_may_be_negative(datatype: Datatype) -> None:
    check_ids(plan_of(VocabularyPlan((1,), None, 0, LEAST[datatype]), datatype))
    with pytest.raises(
        ValueError, match=rf"vocabulary.unknown makes the id {LEAST[datatype] - 1};"
    ):
        check_ids(plan_of(VocabularyPlan((1,), None, 0, LEAST[datatype] - 1), datatype))


def test_boundaries_are_counted() -> None:
    check_ids(plan_of(BucketizePlan(tuple(map(float, range(2**11)))), "FP16"))
    with pytest.raises(ValueError, match=r"bucketize.boundaries makes the id 2049; input 'x'"):
        check_ids(plan_of(BucketizePlan(tuple(map(float, range(2**11 + 1)))), "FP16"))


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_lines_of_files_are_counted(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "v.txt"
    file.write_bytes(b"1\n2\n3" + end)
    check_ids(plan_of(VocabularyPlan((), str(file), 2**24 - 2, 0), "FP32"))
    with pytest.raises(ValueError, match=rf"vocabulary makes the id {2**24 + 1}; input 'x'"):
        check_ids(plan_of(VocabularyPlan((), str(file), 2**24 - 1, 0), "FP32"))
    with pytest.raises(Unavailable, match=r"^vocabulary 'w.txt' cannot be read: No such file"):
        check_ids(plan_of(VocabularyPlan((), str(tmp_path / "w.txt"), 0, 0), "FP32"))
