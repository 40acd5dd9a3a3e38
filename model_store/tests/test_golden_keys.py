"""Keys found in the inputs of a graph, and compared with those of a golden request."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from anabranch_model_store.golden.differences import different_key, different_score
from anabranch_model_store.golden.keys import feature_keys
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
)
from anabranch_runtime.ranking.requests import RankRequest
from anabranch_runtime.ranking.rules import PreparedRanking

SEQUENCE = RaggedPlan(2, "last", 3, 0)
BAG = RaggedPlan(4, "first", None, 0)


def feature(name: str = "f", **fields: Any) -> FeaturePlan:
    return FeaturePlan(**{"name": name, "side": "candidate", "type": "int64", **fields})


def found(
    plan: FeaturePlan, arrays: Mapping[str, Any], rows: int = 2, tensors: Sequence[TensorFill] = ()
) -> Any:
    ranking = RankingPlan(
        features=(plan,), tensors=tuple(tensors), id="f", heads=(), weights=(), formula="head"
    )
    prepared = PreparedRanking(
        request=RankRequest("json", {}, {}),
        rows=rows,
        arrays={name: np.asarray(array) for name, array in arrays.items()},
        heads=(),
        counts=np.zeros((1, 5), np.int64),
    )
    return feature_keys(ranking, plan, prepared)


X = (TensorFill("X", "FP32", (6,), once=False),)
Q = tuple(TensorFill(name, "INT64", (1,), once=False) for name in ("q", "r"))
ROWS = np.arange(12).reshape(2, 6)


@pytest.mark.parametrize(
    ("plan", "arrays", "tensors", "keys"),
    [
        (feature(values=(SinkPlan(0, 2),)), {"X": ROWS}, X, [2, 8]),
        (feature(values=(SinkPlan(0, 2),)), {"X": np.float32(ROWS)}, X, [2, 8.0]),
        (
            feature(values=(SinkPlan(0, 1),), ragged=SEQUENCE),
            {"X": ROWS},
            X,
            [[1, 2, 3], [7, 8, 9]],
        ),
        (
            feature(values=(SinkPlan(0, 0),), shape=(2,), type="float32"),
            {"X": ROWS},
            X,
            [[0, 1], [6, 7]],
        ),
        (
            feature(values=(SinkPlan(0, 0), SinkPlan(1, 0))),
            {"q": [[1], [2]], "r": [3, 4]},
            Q,
            [[1, 3], [2, 4]],
        ),
        (feature(side="user", values=(SinkPlan(0, 2),)), {"X": ROWS}, X, [2]),
        (feature(keys=("f",)), {"f": [5, 6]}, (), [5, 6]),
        (feature(keys=("f",)), {"f": [[5], [2**63 - 1]]}, (), [5, 2**63 - 1]),
        (feature(keys=("f",)), {"f": [-1, -(2**63)]}, (), [2**64 - 1, 2**63]),
        (
            feature(keys=("f",), ragged=BAG),
            {"f": [5, 6, 7], "f.lengths": [0, 3]},
            (),
            [[], [5, 6, 7]],
        ),
        (feature(keys=("f",), ragged=BAG, side="user"), {"f": [5], "f.lengths": [1]}, (), [[5]]),
        (feature(keys=("f.a", "f.b")), {"f.a": [5, 6], "f.b": [7, 8]}, (), [[5, 7], [6, 8]]),
        (
            feature(keys=("f.a", "f.b"), ragged=BAG),
            {"f.a": [5, 6], "f.a.lengths": [2, 0], "f.b": [7, 8], "f.b.lengths": [2, 0]},
            (),
            [[[5, 7], [6, 8]], []],
        ),
        (
            feature(values=(SinkPlan(0, 0),), type="string"),
            {"q": np.array([b"a", b"\xc3\xa4"], object)},
            Q,
            ["a", "ä"],
        ),
    ],
)
def test_keys_are_found_where_the_plan_puts_them(
    plan: FeaturePlan, arrays: Any, tensors: Any, keys: list[Any]
) -> None:
    rows = found(plan, arrays, tensors=tensors)
    assert different_key("g", "f", plan.side, rows, keys) is None
    assert different_key("g", "f", plan.side, rows, keys[:-1]) is not None
    assert different_key("g", "f", plan.side, rows, [*keys, keys[0]]) is not None


def key_difference(keys: list[Any], plan: FeaturePlan, arrays: Any, tensors: Any = ()) -> str:
    difference = different_key(
        "golden/a.json", "f", plan.side, found(plan, arrays, tensors=tensors), keys
    )
    assert difference is not None
    return difference.text


def test_the_first_difference_is_told_in_words() -> None:
    one = feature(keys=("f",))
    bag = feature(keys=("f",), ragged=BAG)
    bags = {"f": [5, 6, 7], "f.lengths": [1, 2]}
    assert (
        key_difference([5, 7], one, {"f": [5, 6]})
        == "golden/a.json: feature 'f', candidate 1: found key 6, expected 7"
    )
    user = feature(keys=("f",), side="user")
    assert (
        key_difference([7], user, {"f": [6]})
        == "golden/a.json: feature 'f', user: found key 6, expected 7"
    )
    assert (
        key_difference([[5], [6, 8]], bag, bags)
        == "golden/a.json: feature 'f', candidate 1: found key 7 (value 1), expected 8"
    )
    assert (
        key_difference([[5], [6]], bag, bags)
        == "golden/a.json: feature 'f', candidate 1: found 2 keys [6, 7], expected 1: [6]"
    )
    assert (
        key_difference([5, [6, 7]], bag, bags)
        == "golden/a.json: feature 'f', candidate 0: found [5], expected one key 5, not a list"
    )
    assert "candidate 0: found [5], expected a list of keys for one value: [5]" in key_difference(
        [[5], 6], one, {"f": [5, 6]}
    )
    pair = feature(keys=("f.a", "f.b"))
    pairs = {"f.a": [5, 6], "f.b": [7, 8]}
    assert "candidate 1: found key 8 (table 1), expected 9" in key_difference(
        [[5, 7], [6, 9]], pair, pairs
    )
    assert "expected 5 for a value that has 2 keys" in key_difference([5, 6], pair, pairs)


@pytest.mark.parametrize(
    ("found_value", "expected", "same"),
    [
        (np.int64(2), 2.0, True),
        (np.int64(2), 2.5, False),
        (np.int64(2), "2", False),
        (np.float32(0.1), 0.1, True),
        (np.float32(0.1), 0.1000001, False),
        (np.float32("nan"), 0.0, False),
        (np.int64(-1), 2**64 - 1, True),
        (np.int64(-1), 2**63 - 1, False),
        (np.int64(2**53 + 1), 2**53, False),
    ],
)
def test_keys_are_the_same_or_they_are_not(found_value: Any, expected: Any, same: bool) -> None:
    rows = found(feature(keys=("f",)), {"f": [found_value, found_value]})
    assert (different_key("g", "f", "candidate", rows, [expected] * 2) is None) == same


def test_scores_may_be_a_little_off() -> None:
    scores = np.array([0.25, 0.5], np.float32)
    assert different_score("g", "ctr", scores, [0.25005, 0.5], 1e-4) is None
    assert different_score("g", "ctr", scores[:, None], [0.25, 0.5], 0) is None
    assert different_score("g", "ctr", scores[:, None], [[0.25], [0.5]], 0) is None
    difference = different_score("g", "ctr", scores, [0.25, 0.5005], 1e-4)
    assert difference is not None
    assert difference.text == (
        "g: output 'ctr', candidate 1: found 0.5, expected 0.5005 within 0.0001 (it is 0.0005 off)"
    )


def test_what_is_no_number_is_never_within() -> None:
    scores = np.array([np.nan], np.float32)
    assert different_score("g", "ctr", scores, [0.25], 1e9) is not None


def test_vectors_are_compared_number_by_number() -> None:
    scores = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    assert different_score("g", "v", scores, [[1, 2], [3, 4]], 0) is None
    difference = different_score("g", "v", scores, [[1, 2], [3, 5]], 0.5)
    assert difference is not None
    assert "candidate 1: found 4 at [1], expected 5" in difference.text
    shape = different_score("g", "v", scores, [1, 2], 0.5)
    assert shape is not None
    assert "found numbers of shape [2], expected numbers of shape []" in shape.text
