import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.models import RowLayout
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec


@pytest.fixture
def rules() -> InputRules:
    return InputRules(
        (
            TensorSpec("ids", "INT64", (-1, 3)),
            TensorSpec("dense", "FP32", (-1, -1)),
            TensorSpec("user", "FP32", (1, 2)),
        ),
        (0, 0, None),
    )


def test_order_follows_the_model_and_counts_rows(rules: InputRules) -> None:
    ids, dense, user = np.zeros((5, 3)), np.zeros((5, 9)), np.zeros((1, 2))

    ordered, rows = rules.order({"user": user, "dense": dense, "ids": ids})

    assert rows == 5
    assert all(one is two for one, two in zip(ordered, (ids, dense, user), strict=True))


def test_rows_are_known_from_a_shape(rules: InputRules) -> None:
    assert rules.rows_in("dense", [7, 2]) == 7
    assert rules.rows_in("user", [1, 2]) == 1


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "said"),
    [
        ("id", "INT64", [1, 3], "no such input; expected 'ids', 'dense', 'user'"),
        ("ids", "INT32", [1, 3], "expected datatype INT64, got 'INT32'"),
        ("ids", "INT64", [1, 4], r"expected shape \[-1, 3\] \(-1 = any\), got \[1, 4\]"),
        ("ids", "INT64", [3], r"got \[3\]"),
        ("ids", "INT64", [-1, 3], r"with the sizes that were sent, each at least 0, got \[-1, 3\]"),
        (
            "dense",
            "FP32",
            [2, -9],
            r"\(-1 = any\) with the sizes that were sent, .*, got \[2, -9\]",
        ),
        ("ids", "INT64", [], r"got \[\]"),
        ("user", "FP32", [2, 2], r"expected shape \[1, 2\], got"),
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


@pytest.fixture
def user_rules() -> InputRules:
    return InputRules(
        (
            TensorSpec("user", "INT64", (-1,)),
            TensorSpec("words", "BYTES", (-1, -1)),
            TensorSpec("item", "FP32", (-1, 2)),
            TensorSpec("same", "FP32", (2,)),
        ),
        (0, 0, 0, None),
        ("user", "words"),
        10_000,
    )


def request_of(users: int, words: int, items: int) -> dict[str, NDArray[np.generic]]:
    return {
        "item": np.zeros((items, 2), np.float32),
        "user": np.arange(users),
        "words": np.full((words, 3), b"word", np.object_),
        "same": np.zeros(2, np.float32),
    }


@pytest.mark.parametrize(
    ("users", "words", "items"),
    [(1, 1, 4), (4, 1, 4), (1, 4, 4), (4, 4, 4), (1, 1, 1), (1, 1, 0), (0, 1, 0)],
)
def test_users_have_one_row_or_as_many_as_the_rest(
    user_rules: InputRules, users: int, words: int, items: int
) -> None:
    sent = request_of(users, words, items)

    ordered, rows = user_rules.order(sent)

    assert rows == items
    assert [array.shape for array in ordered] == [(items,), (items, 3), (items, 2), (2,)]
    np.testing.assert_array_equal(ordered[0], np.resize(sent["user"], items))
    assert ordered[2] is sent["item"]
    assert all(
        array is sent[name] or np.shares_memory(array, sent[name]) or items == 0
        for array, name in zip(ordered, ("user", "words", "item", "same"), strict=True)
    )


@pytest.mark.parametrize(("users", "words", "items"), [(2, 1, 4), (4, 1, 1), (1, 3, 4), (0, 1, 4)])
def test_any_other_number_of_users_is_refused(
    user_rules: InputRules, users: int, words: int, items: int
) -> None:
    said = f"'user' has {users}, 'words' has {words}, 'item' has {items}; user, words may have 1"

    with pytest.raises(InvalidInput, match=said):
        user_rules.order(request_of(users, words, items))


def test_without_other_rows_users_count_themselves() -> None:
    rules = InputRules(
        (TensorSpec("a", "INT64", (-1,)), TensorSpec("b", "INT64", (-1,))), (0, 0), ("a", "b"), 99
    )

    assert rules.order({"a": np.zeros(1), "b": np.zeros(3)})[1] == 3
    assert rules.order({"a": np.zeros(1), "b": np.zeros(1)})[1] == 1
    with pytest.raises(InvalidInput, match="'a' has 2, 'b' has 3"):
        rules.order({"a": np.zeros(2), "b": np.zeros(3)})


def test_what_users_amount_to_is_bounded_before_anything_is_allocated(
    user_rules: InputRules,
) -> None:
    few, many = request_of(1, 1, 40), request_of(1, 1, 60)

    assert user_rules.order(few)[1] == 40  # 40 * (8 + 3 * (64 + 4)) bytes
    with pytest.raises(TooLarge, match="repeated for 60 rows are 12720 bytes: at most 10000"):
        user_rules.order(many)


def test_user_inputs_have_rows() -> None:
    with pytest.raises(ValueError, match=r"\['x'\] have no rows"):
        InputRules((TensorSpec("x", "FP32", (1, 2)),), (None,), ("x",), 99)
