"""Candidates and users as columns: every form, as JSON and as messages, and what is refused."""

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # comes without types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_client.rank_json import encode_ranking as encode_json
from anabranch_client.rank_messages import encode_ranking as encode_message
from anabranch_client.rank_options import RankOptions, rank_options
from anabranch_wire.errors import InvalidInput
from anabranch_wire.ranking import FLOAT32, INT64, Column, RankRequest

NONE = RankOptions()


def as_json(value: Any, *, user: bool = False) -> Any:
    sent = {"f": value}
    body = encode_json(sent if user else {}, {} if user else sent, NONE)
    return json.loads(body)["user" if user else "candidates"]["f"]


def as_message(value: Any, *, user: bool = False) -> Column:
    sent = {"f": value}
    body = encode_message("m", "", sent if user else {}, {} if user else sent, NONE)
    request = RankRequest.FromString(body)
    return (request.user if user else request.candidates)["f"]


def read(column: Column) -> tuple[list[Any], list[int], list[float]]:
    """Values, lengths and weights of a message."""
    values: list[Any] = [text.decode() for text in column.strings]
    if column.raw:
        dtype = {INT64: "<i8", FLOAT32: "<f4"}[column.type]
        values = np.frombuffer(column.raw, dtype).tolist()
    lengths = np.frombuffer(column.lengths, "<u4").tolist()
    return values, lengths, np.frombuffer(column.weights, "<f4").tolist()


RAGGED = [[1, 2], [], [3]]
WEIGHTED = [{"ids": [1, 2], "weights": [0.5, 1.0]}, {"ids": [], "weights": []}, {"ids": [3]}]

FORMS: Mapping[str, tuple[Any, Any, tuple[list[Any], list[int], list[float]]]] = {
    "integers": ([1, -2], [1, -2], ([1, -2], [], [])),
    "numbers": ([1, 2.5], [1, 2.5], ([1.0, 2.5], [], [])),
    "texts": (["a", "ü"], ["a", "ü"], (["a", "ü"], [], [])),
    "booleans": ([True, False], [True, False], ([1, 0], [], [])),
    "int8": (np.array([1, -2], np.int8), [1, -2], ([1, -2], [], [])),
    "big-endian": (np.array([1, -2], ">i4"), [1, -2], ([1, -2], [], [])),
    "half": (np.array([1.5], np.float16), [1.5], ([1.5], [], [])),
    "double": (np.array([0.1]), [0.1], ([float(np.float32(0.1))], [], [])),
    "bool array": (np.array([True]), [1], ([1], [], [])),
    "text array": (np.array(["a", "bc"]), ["a", "bc"], (["a", "bc"], [], [])),
    "object array": (np.array(["a", "bc"], object), ["a", "bc"], (["a", "bc"], [], [])),
    "vectors": (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], ([1, 2, 3, 4], [], [])),
    "ragged": (RAGGED, RAGGED, ([1, 2, 3], [2, 0, 1], [])),
    "values and lengths": (([1, 2, 3], [2, 0, 1]), RAGGED, ([1, 2, 3], [2, 0, 1], [])),
    "texts and lengths": ((["a", "b"], [2, 0]), [["a", "b"], []], (["a", "b"], [2, 0], [])),
    "with weights": (
        (np.array([1, 2, 3]), np.array([2, 0, 1]), [0.5, 1.0, 1.0]),
        [*WEIGHTED[:2], {"ids": [3], "weights": [1.0]}],
        ([1, 2, 3], [2, 0, 1], [0.5, 1.0, 1.0]),
    ),
    "mappings": (WEIGHTED, WEIGHTED, ([1, 2, 3], [2, 0, 1], [0.5, 1.0, 1.0])),
    "arrow": (pa.array([1, 2], pa.uint8()), [1, 2], ([1, 2], [], [])),
    "arrow bool": (pa.array([True, False]), [1, 0], ([1, 0], [], [])),
    "arrow texts": (pa.array(["a", "ü"]), ["a", "ü"], (["a", "ü"], [], [])),
    "arrow dictionary": (
        pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"], (["a", "b", "a"], [], [])
    ),
    "arrow lists": (pa.array(RAGGED), RAGGED, ([1, 2, 3], [2, 0, 1], [])),
    "arrow large lists": (
        pa.array(RAGGED, pa.large_list(pa.int32())), RAGGED, ([1, 2, 3], [2, 0, 1], [])
    ),
    "arrow sliced lists": (pa.array([[9], *RAGGED])[1:], RAGGED, ([1, 2, 3], [2, 0, 1], [])),
    "arrow fixed lists": (
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), [[1, 2], [3, 4]],
        ([1, 2, 3, 4], [], []),
    ),
    "arrow chunks": (pa.chunked_array([[1], [2, 3]]), [1, 2, 3], ([1, 2, 3], [], [])),
    "nothing": ([], [], ([], [], [])),
}  # fmt: skip


@pytest.mark.parametrize(("value", "text", "message"), FORMS.values(), ids=FORMS.keys())
def test_forms_of_candidates(value: Any, text: Any, message: Any) -> None:
    assert as_json(value) == text
    assert read(as_message(value)) == message


@pytest.mark.parametrize(
    ("value", "text", "message"),
    [
        (5, 5, ([5], [], [])),
        (2.5, 2.5, ([2.5], [], [])),
        ("de", "de", (["de"], [], [])),
        (np.int32(5), 5, ([5], [], [])),
        (np.float32(0.5), 0.5, ([0.5], [], [])),
        ([5, 9, 9], [5, 9, 9], ([5, 9, 9], [], [])),
        (np.array([0.5, 1.0]), [0.5, 1.0], ([0.5, 1.0], [], [])),
        ({"ids": [1, 2], "weights": [1, 0.5]},) * 2 + (([1, 2], [], [1.0, 0.5]),),
        (pa.array([1, 2]), [1, 2], ([1, 2], [], [])),
    ],
)
def test_forms_of_a_user(value: Any, text: Any, message: Any) -> None:
    assert as_json(value, user=True) == text
    assert read(as_message(value, user=True)) == message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, None], [1, None]),
        (pa.array([1, None]), [1, None]),
        (pa.array([True, None]), [1, None]),
        (pa.array(["a", None]), ["a", None]),
        (pa.array([[1, 2], None, []]), [[1, 2], None, []]),
        (pa.nulls(1), [None]),
        (np.array(["a", None], object), ["a", None]),
    ],
)
def test_missing_values_are_null_in_json_and_refused_by_name_in_messages(
    value: Any, text: Any
) -> None:
    assert as_json(value) == text
    row = text.index(None)
    with pytest.raises(InvalidInput, match=f"feature 'f', candidate {row}: it is missing"):
        as_message(value)


def test_a_user_without_a_value_is_null_in_json_and_left_out_of_messages() -> None:
    assert as_json(None, user=True) is None
    assert not RankRequest.FromString(encode_message("m", "", {"f": None}, {}, NONE)).user


@pytest.mark.parametrize("value", [[1.0, float("nan")], np.array([1, np.nan], np.float32)])
def test_a_nan_is_a_number_and_not_missing(value: Any) -> None:
    assert np.isnan(as_json(value)[1])
    assert np.isnan(read(as_message(value))[0][1])
    assert np.isnan(as_json([None, *value])[2])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (([1, 2], [1]), "feature 'f': expected lengths that add up to 2 values, got 1"),
        (([1, 2], [3, -1]), "feature 'f': expected lengths that add up to 2"),
        (([1, 2], [1.0, 1.0]), "feature 'f': expected lengths of one axis, integers"),
        (([1, 2], [2], [1.0]), "feature 'f': expected 2 weights, got 1"),
        (([1, 2], [2], ["a", "b"]), "feature 'f': expected numbers as weights"),
        (np.zeros((1, 1, 1)), "feature 'f': expected at most two axes, got 3"),
        (np.zeros(1, np.complex64), "feature 'f': expected numbers or texts, got an array of"),
        (np.array([1 << 63], np.uint64), "feature 'f': expected signed integers of 64 bits"),
        (np.array([b"\xff"]), "feature 'f': expected text, got bytes that are not UTF-8"),
        (pa.array([[1, None]]), "feature 'f': a value inside a list is missing"),
    ],
)
def test_what_has_no_column_is_refused_by_name(value: Any, said: str) -> None:
    for encode in (as_json, as_message):
        with pytest.raises(InvalidInput) as caught:
            encode(value)
        assert said in caught.value.message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, "12"], "feature 'f', candidate 1: expected a number, got \"12\""),
        (["a", 1], "feature 'f', candidate 1: expected text, got 1"),
        ([[1], 2], "feature 'f', candidate 1: expected a list, got 2"),
        ([{"ids": [1, 2], "weights": [1.0]}], "feature 'f', candidate 0: expected as many weights"),
        ([1 << 64], "feature 'f': expected integers of 64 bits"),
        (["\ud800"], "feature 'f': expected text"),
        (object(), "feature 'f': expected one value for each candidate"),
        (5, "feature 'f': expected one value for each candidate, got 5"),
    ],
)
def test_what_messages_cannot_say_is_refused_by_name_and_row(value: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        as_message(value)
    assert said in caught.value.message


@pytest.mark.parametrize("value", [object(), [object()], {1, 2}.union, ["\ud800"], 1j])
def test_what_json_cannot_say_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match="feature 'f'"):
        as_json(value)


def test_tables_are_taken_apart() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    for sent in (table, table.to_batches()[0]):
        assert json.loads(encode_json({}, sent, NONE))["candidates"] == {
            "a": [1, 2],
            "b": ["x", "y"],
        }


def test_frames_of_pandas_with_what_it_calls_missing() -> None:
    pandas: Any = importlib.import_module("pandas")
    frame = pandas.DataFrame(
        {
            "i": [1, 2],
            "f": [0.5, float("nan")],
            "t": ["a", None],
            "n": pandas.array([1, None], dtype="Int64"),
            "c": pandas.Categorical(["a", "b"]),
            "l": [[1, 2], []],
        }
    )
    sent = json.loads(encode_json({}, frame, NONE))["candidates"]
    assert np.isnan(sent["f"].pop())
    assert sent == {
        "i": [1, 2], "f": [0.5], "t": ["a", None], "n": [1, None], "c": ["a", "b"],
        "l": [[1, 2], []],
    }  # fmt: skip
    complete = RankRequest.FromString(encode_message("m", "", {}, frame[["i", "f", "l"]], NONE))
    assert read(complete.candidates["i"]) == ([1, 2], [], [])
    assert read(complete.candidates["l"]) == ([1, 2], [2, 0], [])


@pytest.mark.parametrize(
    ("column", "row"),
    [
        ([0.5, 1e39], 1),
        (np.array([0.0, np.inf, -1e300]), 2),
        (np.array([[1.0, 2.0], [3.0, 4e38]]), 1),
        ((np.array([1.0, 2.0, 4e38]), [1, 0, 2]), 2),
    ],
)
def test_numbers_beyond_float32_are_no_infinities(column: Any, row: int) -> None:
    with pytest.raises(InvalidInput, match=f"'a', candidate {row}: expected a number that fits"):
        encode_message("m", "", {}, {"a": column}, NONE)
    with pytest.raises(InvalidInput, match="feature 'b': expected a number that fits float32"):
        encode_message("m", "", {"b": 1e39}, {"a": [1]}, NONE)


def test_infinities_and_the_largest_numbers_go_as_they_are() -> None:
    most = float(np.finfo(np.float32).max)
    sent = RankRequest.FromString(
        encode_message("m", "", {}, {"a": [most, float("-inf"), float("nan")]}, NONE)
    )
    found = np.frombuffer(sent.candidates["a"].raw, "<f4")
    np.testing.assert_array_equal(found, np.array([most, -np.inf, np.nan], np.float32))


@pytest.mark.parametrize("table", [[1], "a", 5, {1: [2]}])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(InvalidInput, match="candidates: expected"):
        encode_json({}, table, NONE)
    with pytest.raises(InvalidInput, match="candidates: expected"):
        encode_message("m", "", {}, table, NONE)


@given(
    rows=st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=8),
    name=st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8),
)
def test_messages_put_together_by_hand_are_those_of_protobuf(
    rows: list[list[int]], name: str, texts: list[str]
) -> None:
    flat = np.array([value for row in rows for value in row], np.int64)
    lengths = np.array([len(row) for row in rows], np.uint32)
    candidates = {name: (flat, lengths), f"{name} ": texts, f"{name}  ": flat}

    request = RankRequest.FromString(encode_message("m", "7", {"u": 1}, candidates, NONE))

    assert (request.model_name, request.model_version) == ("m", "7")
    assert read(request.user["u"]) == ([1], [], [])
    assert read(request.candidates[name]) == (flat.tolist(), lengths.tolist(), [])
    assert read(request.candidates[f"{name} "])[0] == texts
    assert read(request.candidates[f"{name}  "]) == (flat.tolist(), [], [])


def test_options_travel_in_both_forms() -> None:
    options = rank_options(3, ["ctr", "cvr"], True, 1, 9001)
    message = RankRequest.FromString(encode_message("m", "canary", {}, {}, options))
    assert (message.top_k, list(message.outputs), message.explain) == (3, ["ctr", "cvr"], True)
    assert (message.priority, message.routing_key) == (1, "9001")
    assert json.loads(encode_json({}, {}, options)) == {
        "user": {},
        "candidates": {},
        "top_k": 3,
        "outputs": ["ctr", "cvr"],
        "explain": True,
        "parameters": {"priority": 1, "routing_key": "9001"},
    }
    assert json.loads(encode_json({}, {}, NONE)) == {"user": {}, "candidates": {}}


@pytest.mark.parametrize(
    ("top_k", "outputs", "priority"),
    [
        (-1, None, 0),
        (1.5, None, 0),
        (True, None, 0),
        (1 << 32, None, 0),
        (0, "ctr", 0),
        (0, None, -1),
    ],
)
def test_options_of_another_type_are_refused(
    top_k: Any, outputs: Sequence[str] | None, priority: int
) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        rank_options(top_k, outputs, False, priority, None)
