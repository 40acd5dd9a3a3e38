"""Features of a request: every form comes out as the same normal one, and every fault is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.feature_rules import FeatureRules
from anabranch_runtime.features import FeatureInput, cut_feature, place_features
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec

Arrays = dict[str, NDArray[np.generic]]

TAGS = FeatureInput("tags", max_length=4, ragged=True, weighted=True)
CITY = FeatureInput("city")
PAIR = FeatureInput("pair", max_length=2)
CLICKS = FeatureInput("clicks", max_length=100, ragged=True, is_user=True, once=True)
AUTHORS = FeatureInput("authors", max_length=100, ragged=True, is_user=True)


def rules(*features: FeatureInput, dense: bool = False, max_bytes: int = 10_000) -> InputRules:
    specs = (TensorSpec("x", "FP32", (-1, 2)),) if dense else ()
    return InputRules(specs, (0,) * len(specs), (), max_bytes, features)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def order(found: InputRules, **arrays: NDArray[np.generic]) -> tuple[list[list[float]], int]:
    """Admit arrays as a door does; `_` in a name stands for its point."""
    datatypes = {"int64": "INT64", "int32": "INT32", "float32": "FP32"}
    named = {name.replace("_", "."): array for name, array in arrays.items()}
    for name, array in named.items():
        found.find(name, datatypes[array.dtype.name], array.shape)
    inputs, rows = found.order(named)
    for array in inputs:
        assert array.dtype in (np.int64, np.float32)
    return [array.tolist() for array in inputs], rows


BAGS = [[7, 8], [], [9]]
"""Of three rows."""


@pytest.mark.parametrize(
    "sent",
    [
        {"tags_lengths": ints(2, 0, 1)},
        {"tags_lengths": ints(2, 0, 1).astype(np.int32)},
        {"tags_offsets": ints(0, 2, 2, 3)},
        {"tags_offsets": ints(0, 2, 2, 3).astype(np.int32)},
        {"tags_offsets": ints(0, 2, 2), "x": np.zeros((3, 2), np.float32)},
    ],
)
def test_lengths_and_offsets_of_either_type_say_the_same(sent: Arrays) -> None:
    found = rules(TAGS, dense="x" in sent)

    inputs, rows = order(found, tags=ints(7, 8, 9), **sent)

    assert rows == 3
    assert inputs[-3:] == [[7, 8, 9], [2, 0, 1], [1, 1, 1]]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=6))
def test_offsets_alone_have_an_end_where_the_last_one_is_the_number_of_ids(
    bags: list[list[int]],
) -> None:
    ids = ints(*[number for bag in bags for number in bag])
    lengths = [len(bag) for bag in bags]
    offsets = np.cumsum([0, *lengths])

    inputs, rows = order(rules(TAGS), tags=ids, tags_offsets=offsets)

    assert rows == len(bags)
    assert inputs[:2] == [ids.tolist(), lengths]


def test_padded_rows_are_bags_of_one_length_with_their_weights() -> None:
    weights = np.array([[1, 2], [3, 4], [5, 6]], np.float32)

    inputs, rows = order(
        rules(TAGS), tags=ints(1, 2, 3, 0, 5, 0).reshape(3, 2), tags_weights=weights
    )

    assert rows == 3
    assert inputs == [[1, 2, 3, 0, 5, 0], [2, 2, 2], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_a_fixed_feature_comes_with_or_without_its_second_axis(shape: tuple[int, ...]) -> None:
    inputs, rows = order(rules(CITY), city=ints(4, 5, 6).reshape(shape))

    assert (inputs, rows) == ([[4, 5, 6]], 3)


def test_a_request_may_have_no_row() -> None:
    found = rules(TAGS, CITY, PAIR)

    inputs, rows = order(
        found,
        tags=ints(),
        tags_lengths=ints(),
        city=ints(),
        pair=ints().reshape(0, 2),
    )

    assert rows == 0
    assert inputs == [[], [], [], [], []]


def test_offsets_without_any_row_have_their_end_or_nothing() -> None:
    for offsets in (ints(0), ints()):
        inputs, rows = order(rules(TAGS), tags=ints(), tags_offsets=offsets)
        assert (inputs, rows) == ([[], [], []], 0)


# --- users ---------------------------------------------------------------------------------------


def test_one_user_is_kept_once_where_it_is_looked_up_once() -> None:
    inputs, rows = order(
        rules(CITY, CLICKS), city=ints(1, 2, 3), clicks=ints(7, 8), clicks_lengths=ints(2)
    )

    assert (inputs, rows) == ([[1, 2, 3], [7, 8], [2]], 3)


def test_one_user_is_repeated_where_it_is_looked_up_per_row() -> None:
    inputs, rows = order(
        rules(CITY, AUTHORS), city=ints(1, 2, 3), authors=ints(7, 8), authors_offsets=ints(0)
    )

    assert (inputs, rows) == ([[1, 2, 3], [7, 8, 7, 8, 7, 8], [2, 2, 2]], 3)


def test_users_looked_up_together_are_of_the_same_rows() -> None:
    other = FeatureInput("age", is_user=True, once=True)

    inputs, rows = order(
        rules(CITY, CLICKS, other),
        city=ints(1, 2, 3),
        clicks=ints(7, 8),
        clicks_lengths=ints(2),
        age=ints(30, 31, 32),
    )

    assert (inputs[1:], rows) == ([[7, 8, 7, 8, 7, 8], [2, 2, 2], [30, 31, 32]], 3)


def test_users_alone_are_rows_themselves() -> None:
    inputs, rows = order(rules(CLICKS), clicks=ints(7, 8), clicks_offsets=ints(0, 1))

    assert (inputs, rows) == ([[7, 8], [1, 1]], 2)


def test_repeated_users_are_bounded() -> None:
    found = rules(CITY, AUTHORS, max_bytes=1000)

    with pytest.raises(TooLarge, match=r"repeated for 30 rows are 1200 bytes: at most 1000"):
        order(found, city=np.arange(30), authors=ints(*range(4)), authors_lengths=ints(4))


# --- faults --------------------------------------------------------------------------------------

IDS = ints(7, 8, 9)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({}, "feature 'tags': expected 'tags.lengths' or 'tags.offsets' beside flat ids, got nei"),
        ({"tags_lengths": ints(3), "tags_offsets": ints(0)}, "beside flat ids, got both"),
        ({"tags_lengths": ints(4, -1)}, "feature 'tags', row 1: expected a length of at least 0"),
        ({"tags_lengths": ints(3, -(2**63))}, "row 1: expected a length of at least 0, got -922"),
        ({"tags_lengths": ints(0, 5)}, "feature 'tags', row 1: expected at most 4 ids, got 5"),
        ({"tags_lengths": ints(0, 4)}, "feature 'tags', row 1: expected at most its 3 ids, got 4"),
        ({"tags_lengths": ints(1, 1)}, "expected lengths that add up to its 3 ids, got 2"),
        ({"tags_lengths": ints(3, 3)}, "expected lengths that add up to its 3 ids, got 6"),
        ({"tags_lengths": ints()}, "expected lengths that add up to its 3 ids, got 0"),
        ({"tags_offsets": ints(1, 3)}, "row 0: expected offsets that begin with 0, got 1"),
        ({"tags_offsets": ints(0, 2, 1, 3)}, "row 2: expected an offset of at least 2, where"),
        ({"tags_offsets": ints(0, 4)}, "row 1: expected an offset from 0 to its 3 ids, got 4"),
        ({"tags_offsets": ints(0, -(2**63))}, "row 1: expected an offset from 0 to its 3 ids, go"),
        ({"tags_offsets": ints()}, "expected lengths that add up to its 3 ids, got 0"),
        (
            {"tags_lengths": ints(3), "tags_weights": np.ones(2, np.float32)},
            "feature 'tags': expected weights of shape [3], one for each id, got [2]",
        ),
    ],
)
def test_parts_that_do_not_fit_are_named(sent: Arrays, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        order(rules(TAGS), tags=IDS, **sent)

    assert text in error.value.message


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (ints(0, 1, 2), "expected 3 as the last of 3 offsets, the number of its ids, got 2"),
        (ints(0), "expected 2 offsets or one more, as the other inputs have 2 rows, got 1"),
        (ints(0, 1, 2, 3), "expected 2 offsets or one more, as the other inputs have 2 rows, got"),
    ],
)
def test_offsets_are_held_against_the_rows_of_other_inputs(
    offsets: NDArray[np.int64], text: str
) -> None:
    x = np.zeros((2, 2), np.float32)

    with pytest.raises(InvalidInput) as error:
        order(rules(TAGS, dense=True), x=x, tags=IDS, tags_offsets=offsets)

    assert f"feature 'tags': {text}" in error.value.message


def test_padded_ids_go_with_neither_lengths_nor_too_many_columns() -> None:
    ids = np.zeros((2, 5), np.int64)

    with pytest.raises(InvalidInput, match="expected flat ids beside lengths or offsets, got shap"):
        order(rules(TAGS), tags=ids, tags_lengths=ints(5, 5))
    with pytest.raises(InvalidInput, match="'tags': expected at most 4 ids in a row, got 5"):
        order(rules(TAGS), tags=ids)


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "text"),
    [
        ("tags", "INT32", (3,), "input 'tags': expected datatype INT64, got 'INT32'"),
        ("tags", "INT64", (3, 1, 1), "input 'tags': expected shape [-1] or [-1, -1] (-1 = any)"),
        ("tags", "INT64", (-3,), "input 'tags': expected shape [-1] or [-1, -1]"),
        ("tags.lengths", "FP32", (3,), "expected datatype INT64 or INT32, got 'FP32'"),
        ("tags.offsets", "INT64", (3, 1), "input 'tags.offsets': expected shape [-1] (-1 = any)"),
        ("tags.weights", "FP64", (3,), "input 'tags.weights': expected datatype FP32"),
        ("city", "INT64", (3, 2), "input 'city': expected shape [-1] or [-1, 1] (-1 = any)"),
        ("pair", "INT64", (3,), "input 'pair': expected shape [-1, 2] (-1 = any), got [3]"),
        ("city.lengths", "INT64", (3,), "input 'city.lengths': no such input; expected 'tags'"),
        ("pair.weights", "FP32", (3, 2), "input 'pair.weights': no such input"),
    ],
)
def test_a_part_is_refused_before_its_data_is_read(
    name: str, datatype: str, shape: tuple[int, ...], text: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        rules(TAGS, CITY, PAIR).find(name, datatype, shape)

    assert text in error.value.message


def test_features_and_dense_inputs_agree_on_the_rows() -> None:
    with pytest.raises(InvalidInput) as error:
        order(
            rules(CITY, AUTHORS, dense=True),
            x=np.zeros((2, 2), np.float32),
            city=ints(1, 2, 3),
            authors=ints(),
            authors_lengths=ints(0),
        )

    assert error.value.message == (
        "inputs disagree on the number of rows: 'x' has 2, 'city' has 3, 'authors' has 1; "
        "authors may have 1"
    )


def test_a_feature_that_is_not_sent_is_named() -> None:
    with pytest.raises(InvalidInput, match="input 'city' is missing; expected 'tags', 'city'"):
        order(rules(TAGS, CITY), tags=IDS, tags_lengths=ints(3))


def test_rows_are_limited_by_what_counts_them() -> None:
    found = rules(TAGS, CITY, PAIR)

    assert found.rows_in("tags", (50,)) == 1
    assert found.rows_in("tags", (50, 3)) == 50
    assert found.rows_in("tags.lengths", (50,)) == 50
    assert found.rows_in("tags.offsets", (51,)) == 50
    assert found.rows_in("tags.offsets", (0,)) == 0
    assert found.rows_in("city", (50,)) == 50
    assert found.rows_in("pair", (50, 2)) == 50


@given(
    bags=st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=1, max_size=4),
    wrong=st.integers(-2, 2),
    one_user=st.booleans(),
    small=st.booleans(),
)
def test_usual_requests_come_out_as_all_others(
    bags: list[list[int]], wrong: int, one_user: bool, small: bool
) -> None:
    found = rules(TAGS, CITY, CLICKS, dense=True)
    rows = len(bags)
    ids = ints(*[number for bag in bags for number in bag])
    lengths = ints(*map(len, bags)).astype(np.int32 if small else np.int64)
    lengths[-1] += wrong
    clicks = ids if not one_user else ints(1, 2)
    arrays: Arrays = {
        "x": np.zeros((rows, 2), np.float32),
        "tags": ids,
        "tags.lengths": lengths,
        "tags.weights": ids.astype(np.float32),
        "city": np.arange(rows),
        "clicks": clicks,
        "clicks.lengths": ints(2) if one_user else ints(*map(len, bags)),
    }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureRules, "usual", lambda *_: None)
        expected = outcome(found, arrays)

    assert outcome(found, arrays) == expected


def outcome(found: InputRules, arrays: Arrays) -> object:
    try:
        inputs, rows = found.order(arrays)
    except InvalidInput as error:
        return error.message
    return [(array.dtype, array.tolist()) for array in inputs], rows


EXTREMES = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**31, 2**62, 2**63 - 1])


@given(
    ids=st.integers(0, 6),
    bags=st.lists(EXTREMES, max_size=5),
    part=st.sampled_from(["lengths", "offsets"]),
    with_x=st.booleans(),
)
def test_whatever_comes_in_is_refused_or_comes_out_sound(
    ids: int, bags: list[int], part: str, with_x: bool
) -> None:
    found = rules(TAGS, dense=with_x)
    arrays: Arrays = {"tags": np.arange(ids), f"tags.{part}": ints(*bags)}
    if with_x:
        arrays["x"] = np.zeros((len(bags), 2), np.float32)
    try:
        inputs, rows = found.order(arrays)
    except InvalidInput:
        return
    flat, lengths, weights = inputs[-3:]
    assert len(flat) == len(weights) == ids
    assert len(lengths) == rows
    assert sum(lengths.tolist()) == ids
    assert all(0 <= length <= TAGS.max_length for length in lengths.tolist())


# --- cutting -------------------------------------------------------------------------------------


@given(
    bags=st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=12),
    data=st.data(),
)
def test_parts_of_a_feature_are_those_of_their_rows(
    bags: list[list[int]], data: st.DataObject
) -> None:
    middle = data.draw(st.integers(0, len(bags)))
    ids = ints(*[number for bag in bags for number in bag])
    inputs = (ids, ints(*map(len, bags)), ids.astype(np.float32))
    (place,) = place_features([TAGS], 0)

    parts = cut_feature(TAGS, place, inputs, (0, middle, len(bags)))

    for part, own in zip(parts, (bags[:middle], bags[middle:]), strict=True):
        flat = [number for bag in own for number in bag]
        assert [array.tolist() for array in part] == [flat, [len(bag) for bag in own], flat]
