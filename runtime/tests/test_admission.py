from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.admission import InputRules
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec


@pytest.fixture
def rules() -> InputRules:
    return InputRules(
        DenseModel(
            Path("m/1/model.onnx"),
            (
                TensorSpec("ids", "INT64", (-1, 3)),
                TensorSpec("dense", "FP32", (-1, -1)),
                TensorSpec("user", "FP32", (1, 2)),
            ),
            (TensorSpec("y", "FP32", (-1,)),),
            RowLayout(True, 1, (0, 0, None), (0,)),
        )
    )


def test_order_follows_the_model_and_counts_rows(rules: InputRules) -> None:
    ids, dense, user = np.zeros((5, 3)), np.zeros((5, 9)), np.zeros((1, 2))

    ordered, rows = rules.order({"user": user, "dense": dense, "ids": ids})

    assert rows == 5
    assert all(one is two for one, two in zip(ordered, (ids, dense, user), strict=True))


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "said"),
    [
        ("id", "INT64", [1, 3], "no such input; expected 'ids', 'dense', 'user'"),
        ("ids", "INT32", [1, 3], "expected datatype INT64, got 'INT32'"),
        ("ids", "INT64", [1, 4], r"expected shape \[-1, 3\] \(-1 = any\), got \[1, 4\]"),
        ("ids", "INT64", [3], r"got \[3\]"),
        ("ids", "INT64", [-1, 3], r"got \[-1, 3\]"),
        ("ids", "INT64", [], r"got \[\]"),
        ("user", "FP32", [2, 2], r"expected shape \[1, 2\]"),
    ],
)
def test_find_refuses(
    rules: InputRules, name: str, datatype: str, shape: list[int], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        rules.find(name, datatype, shape)


def test_missing_inputs_are_named(rules: InputRules) -> None:
    with pytest.raises(InvalidInput, match="'dense' is missing"):
        rules.order({"ids": np.zeros((1, 3)), "user": np.zeros((1, 2))})


def test_rows_that_disagree_are_named(rules: InputRules) -> None:
    with pytest.raises(InvalidInput, match="'ids' has 2, 'dense' has 3"):
        rules.order({"ids": np.zeros((2, 3)), "dense": np.zeros((3, 1)), "user": np.zeros((1, 2))})


def test_a_layout_that_pads_must_be_proven() -> None:
    with pytest.raises(ValueError, match="independent"):
        RowLayout(False, 2, (0,), (0,))
    with pytest.raises(ValueError, match="axis 0"):
        RowLayout(True, 2, (1,), (0,))
