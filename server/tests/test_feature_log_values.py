"""Features are taken back out of the arrays that the graph and lookups get."""

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
)
from anabranch_runtime.ranking.requests import RankRequest
from anabranch_runtime.ranking.rules import PreparedRanking
from anabranch_server.feature_log.feature_values import FeatureValues, feature_values

HASH = HashPlan("xxh64", 100)


def values_of(
    feature: FeaturePlan,
    arrays: dict[str, NDArray[np.generic]],
    tensors: tuple[TensorFill, ...] = (),
    rows: int = 2,
) -> FeatureValues:
    plan = RankingPlan(
        features=(feature,),
        tensors=tensors,
        id="item",
        heads=("score",),
        weights=(1.0,),
        formula="head",
    )
    request = RankRequest("json", {}, {})
    counts = np.zeros((1, 5), np.int64)
    return feature_values(plan, PreparedRanking(request, rows, arrays, ("score",), counts), feature)


def test_a_column_of_a_packed_float_input_is_keys_again() -> None:
    feature = FeaturePlan(
        name="slot", side="candidate", type="string", transform=HASH, values=(SinkPlan(0, 1),)
    )
    packed = np.array([[0.5, 7, 9], [0.25, 99, 9]], np.float32)

    found = values_of(feature, {"X": packed}, (TensorFill("X", "FP32", (3,), once=False),))

    assert found.values.dtype == np.int64
    assert found.values.tolist() == [7, 99]
    assert (found.rows, found.lengths) == (2, None)


def test_numbers_stay_numbers_and_buckets_are_ids() -> None:
    tensors = (TensorFill("x", "FP64", (), once=True),)
    number = FeaturePlan(name="x", side="user", type="float32", values=(SinkPlan(0, 0),))
    bucket = FeaturePlan(
        name="x",
        side="user",
        type="float32",
        transform=BucketizePlan((1.0,)),
        values=(SinkPlan(0, 0),),
    )
    arrays = {"x": np.array([1.0])}

    assert values_of(number, arrays, tensors).values.dtype == np.float32
    assert values_of(bucket, arrays, tensors).values.dtype == np.int64
    assert values_of(number, arrays, tensors).rows == 1


def test_a_vector_has_as_many_values_in_every_row() -> None:
    feature = FeaturePlan(
        name="v", side="candidate", type="float32", shape=(2, 2), values=(SinkPlan(0, 0),)
    )
    tensor = np.arange(8, dtype=np.float32).reshape(2, 2, 2)

    found = values_of(feature, {"v": tensor}, (TensorFill("v", "FP32", (2, 2), once=False),))

    assert found.values.tolist() == list(range(8))
    assert found.lengths is None


def test_a_padded_sequence_ends_where_its_length_says() -> None:
    sequence = RaggedPlan(3, "last", 3, 0)
    feature = FeaturePlan(
        name="seq",
        side="candidate",
        type="int64",
        ragged=sequence,
        values=(SinkPlan(0, 0),),
        lengths=SinkPlan(1, 0),
    )
    tensors = (
        TensorFill("seq", "INT64", (3,), once=False),
        TensorFill("len", "INT32", (), once=False),
    )
    ids = np.array([[5, 0, 0], [0, 0, 8]])  # a value may be what pads
    arrays: dict[str, NDArray[np.generic]] = {"seq": ids, "len": np.array([1, 3], np.int32)}

    found = values_of(feature, arrays, tensors)

    assert found.values.tolist() == [5, 0, 0, 8]
    assert found.lengths is not None
    assert found.lengths.tolist() == [1, 3]


def test_a_padded_sequence_without_a_length_has_its_padding() -> None:
    feature = FeaturePlan(
        name="seq",
        side="user",
        type="int64",
        ragged=RaggedPlan(2, "first", 3, 9),
        values=(SinkPlan(0, 0),),
    )

    found = values_of(
        feature, {"seq": np.array([[5, 9, 9]])}, (TensorFill("seq", "INT64", (3,), once=True),)
    )

    assert found.values.tolist() == [5, 9, 9]
    assert found.lengths is not None
    assert found.lengths.tolist() == [3]


def test_a_user_s_length_holds_for_a_sequence_that_stands_beside_candidates() -> None:
    feature = FeaturePlan(
        name="seq",
        side="user",
        type="int64",
        ragged=RaggedPlan(2, "first", 2, 0),
        values=(SinkPlan(0, 1),),
        lengths=SinkPlan(1, 0),
    )
    tensors = (
        TensorFill("X", "INT64", (3,), once=False),
        TensorFill("len", "INT64", (), once=True),
    )
    arrays: dict[str, NDArray[np.generic]] = {
        "X": np.array([[1, 5, 0], [2, 5, 0]]),
        "len": np.array([1]),
    }

    found = values_of(feature, arrays, tensors)

    assert found.values.tolist() == [5, 5]
    assert found.lengths is not None
    assert found.lengths.tolist() == [1, 1]


def test_a_looked_up_bag_has_its_lengths_and_weights() -> None:
    feature = FeaturePlan(
        name="tags",
        side="candidate",
        type="string",
        transform=HASH,
        ragged=RaggedPlan(9, "first", None, 0),
        weighted=True,
        keys=("tags",),
    )
    arrays: dict[str, NDArray[np.generic]] = {
        "tags": np.array([3, 4, 5]),
        "tags.lengths": np.array([0, 3]),
        "tags.weights": np.array([1, 2, 0.5], np.float32),
    }

    found = values_of(feature, arrays)

    assert found.values.tolist() == [3, 4, 5]
    assert found.lengths is not None
    assert found.lengths.tolist() == [0, 3]
    assert found.weights is not None
    assert found.weights.tolist() == [1, 2, 0.5]
    assert found.rows == 2


def test_keys_of_a_fixed_number_for_each_row() -> None:
    feature = FeaturePlan(name="pair", side="candidate", type="int64", shape=(2,), keys=("pair",))

    for ids in (np.array([[1, 2], [3, 4], [5, 6]]), np.arange(1, 7)):
        found = values_of(feature, {"pair": ids}, rows=3)

        assert found.values.tolist() == [1, 2, 3, 4, 5, 6]
        assert (found.rows, found.lengths) == (3, None)


def test_several_keys_of_a_value_stand_side_by_side() -> None:
    transform = MultiHashPlan(10, (), 0)
    looked_up = FeaturePlan(
        name="a", side="user", type="int64", transform=transform, keys=("a.q", "a.r")
    )
    dense = FeaturePlan(
        name="a",
        side="user",
        type="int64",
        transform=transform,
        values=(SinkPlan(0, 0), SinkPlan(1, 0)),
    )
    arrays: dict[str, NDArray[np.generic]] = {"a.q": np.array([4]), "a.r": np.array([2])}
    tensors = tuple(TensorFill(name, "INT64", (), once=True) for name in arrays)

    assert values_of(looked_up, arrays).values.tolist() == [[4, 2]]
    assert values_of(dense, arrays, tensors).values.tolist() == [[4, 2]]


def test_strings_that_the_graph_takes_stay_strings() -> None:
    feature = FeaturePlan(name="s", side="candidate", type="string", values=(SinkPlan(0, 0),))
    array = np.array([[b"a"], [b"\xc3\xa4"]], np.object_)

    found = values_of(feature, {"s": array}, (TensorFill("s", "BYTES", (1,), once=False),))

    assert found.values.tolist() == [b"a", b"\xc3\xa4"]
