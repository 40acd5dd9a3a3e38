import json
import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime import json_numbers
from anabranch_runtime.json_numbers import (
    JsonError,
    JsonStringTooLong,
    JsonTooDeep,
    JsonTooManyElements,
)
from anabranch_wire.tensors import DATATYPES, Datatype

INTEGERS: tuple[Datatype, ...] = (
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64",
)  # fmt: skip
FLOATS: tuple[Datatype, ...] = ("FP32", "FP64")
NUMBERS: tuple[Datatype, ...] = ("BOOL", *INTEGERS, *FLOATS)
SEPARATORS = [(",", ":"), (", ", ": "), (" ,\n", ":")]


def parse(text: str | bytes, datatype: Datatype, count: int) -> NDArray[Any]:
    data = text.encode() if isinstance(text, str) else text
    return json_numbers.parse(data, datatype, count, 8)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def nested(values: list[Any], width: int) -> list[Any]:
    return [values[i : i + width] for i in range(0, len(values), width)]


@given(
    st.lists(st.floats(allow_nan=False), max_size=100),
    st.sampled_from(SEPARATORS),
    st.integers(1, 7),
)
def test_doubles_are_those_of_the_json_module(
    values: list[float], separators: tuple[str, str], width: int
) -> None:
    flat = json.dumps(values, separators=separators)
    rows = json.dumps(nested(values, width), separators=separators)
    expected = np.array(json.loads(flat), dtype=np.float64)

    assert same_bits(parse(flat, "FP64", len(values)), expected)
    assert same_bits(parse(rows, "FP64", len(values)), expected)


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=100), st.booleans())
def test_floats_survive_both_writers(values: list[float], ours: bool) -> None:
    expected = np.array(values, dtype=np.float32)
    text = json_numbers.dump(expected) if ours else json.dumps(expected.tolist())

    assert same_bits(parse(text, "FP32", len(values)), expected)


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_any_decimal_is_rounded_once(number: str) -> None:
    for datatype in FLOATS:
        # From text NumPy rounds a float32 once; by way of a Python float it would be twice.
        with np.errstate(over="ignore", under="ignore"):
            expected = np.array([number]).astype(DATATYPES[datatype])
        for padding in ("", " " * 200):
            if np.isinf(expected[0]):
                with pytest.raises(JsonError, match="is out of range for FP"):
                    parse(f"[{number}]{padding}", datatype, 1)
            else:
                assert same_bits(parse(f"[{number}]{padding}", datatype, 1), expected)


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        ("1e-45", 1),
        ("7.006492321624085e-46", 0),  # just under half of the smallest float
        ("7.0064923216240854e-46", 1),
        ("3.4028235e38", 0x7F7FFFFF),
        ("3.4028235677973366e38", 0x7F7FFFFF),  # just under the point where infinity begins
        ("1.00000017881393432617187499", 0x3F800001),
        ("1.00000017881393432617187500", 0x3F800002),  # ties to even
        ("1.00000017881393432617187501", 0x3F800002),
        ("16777217", 0x4B800000),
        ("0.1", 0x3DCCCCCD),
        ("-0", 0x80000000),
    ],
)
def test_single_floats_to_the_bit(number: str, bits: int) -> None:
    assert parse(f"[{number}]", "FP32", 1).view(np.uint32)[0] == bits
    assert parse(f"[{number}]{' ' * 200}", "FP32", 1).view(np.uint32)[0] == bits


@pytest.mark.parametrize("number", ["3.4028236e38", "3.4028235677973367e38", "-1e39", "1e400"])
def test_a_float_that_would_become_infinite_is_refused(number: str) -> None:
    with pytest.raises(
        JsonError, match=f"element 1 at byte 3: '{number}' is out of range for FP32"
    ):
        parse(f"[0,{number}]", "FP32", 2)


def test_tokens_for_what_json_lacks() -> None:
    array = parse("[NaN, Infinity, -Infinity]", "FP32", 3)

    assert np.isnan(array[0])
    assert array[1:].tolist() == [np.inf, -np.inf]
    assert json_numbers.dump(array) == b"[NaN,Infinity,-Infinity]"
    with pytest.raises(JsonError, match="expected an integer for INT8, found 'NaN'"):
        parse("[NaN]", "INT8", 1)


@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_reach_their_limits_and_no_further(datatype: Datatype) -> None:
    dtype = DATATYPES[datatype]
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    low, high = int(limits.min), int(limits.max)

    assert parse(f"[{low},{high}]", datatype, 2).tolist() == [low, high]
    for beyond in (low - 1, high + 1, 10**30):
        with pytest.raises(JsonError) as refusal:
            parse(f"[{low}, {beyond}]", datatype, 2)
        assert f"'{beyond}' is out of range for {datatype}, which holds {low} to {high}" in str(
            refusal.value
        )


@pytest.mark.parametrize("datatype", NUMBERS)
def test_arrays_survive_dump_and_parse(datatype: Datatype) -> None:
    noise = np.random.default_rng(3).integers(0, 256, 8000, dtype=np.uint8)
    if datatype == "BOOL":
        noise %= 2
    array = np.nan_to_num(noise.view(DATATYPES[datatype]))

    text = json_numbers.dump(array)

    assert same_bits(parse(text, datatype, array.size), array)
    assert msgspec.json.decode(text) == json.loads(text)


def test_dump_writes_any_layout_in_c_order() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)

    assert json_numbers.dump(array) == b"[0,1,2,3,4,5]"
    assert json_numbers.dump(array.T) == b"[0,3,1,4,2,5]"
    assert json_numbers.dump(array[:, ::2]) == b"[0,2,3,5]"
    assert json_numbers.dump(np.array(1.5, np.float32)) == b"[1.5]"
    assert json_numbers.dump(np.empty((0, 3), np.float32)) == b"[]"
    assert json_numbers.dump(np.array([1.0, 1e20], np.float32)) == b"[1.0,1e+20]"


@pytest.mark.parametrize("dtype", [np.float16, object, np.complex64])
def test_dtypes_without_json_numbers_are_refused(dtype: type) -> None:
    with pytest.raises(ValueError, match="no "):
        json_numbers.dump(np.zeros(2, dtype))


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "BYTES"])
def test_datatypes_without_json_numbers_are_refused(datatype: Datatype) -> None:
    with pytest.raises(ValueError, match=f"datatype {datatype} has no JSON numbers"):
        parse("[1]", datatype, 1)


@pytest.mark.parametrize(
    ("text", "datatype", "count", "message"),
    [
        ("", "FP32", 0, "byte 0: expected an array of numbers, found the end of the text"),
        ("[1,2]", "FP32", 1, "expected 1 elements, found more at byte 3"),
        ("[1, 2]", "FP32", 3, "expected 3 elements, found 2"),
        ("[1,]", "FP32", 1, "element 1 at byte 3: expected a number for FP32, found ']'"),
        ("[1 2]", "FP32", 2, "byte 3: expected ',' or ']', found '2'"),
        ("[01]", "INT64", 1, "element 0 at byte 1: expected a number without leading zeros"),
        ('["1"]', "INT64", 1, "element 0 at byte 1: expected an integer for INT64, found '\"1\"'"),
        ("[1.0]", "INT64", 1, "element 0 at byte 1: expected an integer for INT64, found '1.0'"),
        ("[null]", "BOOL", 1, "expected true, false, 0 or 1 for BOOL, found 'null'"),
        ("[1]x", "FP32", 1, "byte 3: expected nothing after the array, found 'x'"),
        ("[1", "FP32", 1, "byte 2: expected ',' or ']', found the end of the text"),
        ("[\u00e9]", "FP32", 1, "expected a number for FP32, found '??'"),
    ],
)
def test_faults_are_named_with_their_place(
    text: str, datatype: Datatype, count: int, message: str
) -> None:
    with pytest.raises(JsonError) as fault:
        parse(text, datatype, count)
    assert message in str(fault.value)


def test_errors_are_value_errors() -> None:
    assert issubclass(JsonError, ValueError)
    for limit in (JsonTooDeep, JsonTooManyElements, JsonStringTooLong):
        assert issubclass(limit, JsonError)


@given(st.text(alphabet="[],-+.eE0123456789 NaInfityruls", max_size=60))
def test_what_is_accepted_is_json(text: str) -> None:
    try:
        array = parse(text, "FP64", text.count(",") + 1)
    except JsonError:
        return
    flat = np.array(json.loads(text.replace("[", " ").replace("]", " ").join("[]")))
    assert same_bits(array, flat.astype(np.float64))


def test_results_are_aligned_writable_and_own_their_memory() -> None:
    array = parse("[1,2,3]", "FP32", 3)
    view = array[1:]
    assert array.ctypes.data % 64 == 0

    del array
    view[:] = 7

    assert view.tolist() == [7, 7]


def test_any_buffer_will_do() -> None:
    text = b'{"data": [1, 2]}'

    assert parse(memoryview(text)[9:15], "INT8", 2).tolist() == [1, 2]  # type: ignore[arg-type]  # to be refused, or a stand-in
    assert json_numbers.parse(msgspec.Raw(b"[3]"), "INT8", 1, 8).tolist() == [3]
    assert json_numbers.parse(bytearray(b"[4]"), "INT8", 1, 8).tolist() == [4]
    with pytest.raises(TypeError):
        json_numbers.parse("[1]", "INT8", 1, 8)  # type: ignore[arg-type]  # to be refused, or a stand-in


def test_depth_is_limited_and_costs_no_stack() -> None:
    deep = b"[" * 1_000_000

    with pytest.raises(JsonTooDeep, match="nesting at byte 8 is deeper than 8"):
        parse(deep, "FP32", 0)
    with pytest.raises(JsonTooDeep, match="nesting at byte 8 is deeper than 8"):
        json_numbers.scan(deep, 8, 10**9, 100)


def test_a_count_the_text_cannot_hold_asks_for_no_memory() -> None:
    with pytest.raises(JsonError, match="more than 3 bytes of text can hold"):
        parse("[1]", "FP64", 1 << 60)


def test_scan_passes_what_is_within_the_limits() -> None:
    text = json.dumps({"inputs": [{"name": "x", "shape": [2, 2], "data": [1, 2, 3, 4]}]}).encode()

    json_numbers.scan(text, 4, 11, 6)

    with pytest.raises(JsonTooDeep):
        json_numbers.scan(text, 3, 11, 6)
    with pytest.raises(JsonTooManyElements, match="more than 10 elements"):
        json_numbers.scan(text, 4, 10, 6)
    with pytest.raises(JsonStringTooLong, match="string at byte 2 has more than 5 bytes"):
        json_numbers.scan(text, 4, 11, 5)


def test_detach_leaves_a_document_without_its_numbers() -> None:
    text = b'{"inputs": [{"data": [[1, 2], [NaN]], "shape": [3]}, {"data": ["a"], "shape": [1]}]}'

    document, arrays = json_numbers.detach(text, "data", 8)

    assert msgspec.json.decode(document) == {
        "inputs": [{"data": [0], "shape": [3]}, {"data": ["a"], "shape": [1]}]
    }
    assert [bytes(array) for array in arrays] == [b"[[1, 2], [NaN]]"]
    assert np.isnan(json_numbers.parse(arrays[0], "FP32", 3, 8)[2])


def test_detach_limits_how_many() -> None:
    with pytest.raises(JsonTooManyElements, match="more than 1 arrays of numbers"):
        json_numbers.detach(b'[{"data":[]},{"data":[]}]', "data", 1)


NUMBER_LISTS = st.recursive(
    st.integers() | st.floats(), lambda inner: st.lists(inner, max_size=3), max_leaves=8
).filter(lambda value: isinstance(value, list))
DOCUMENTS = st.recursive(
    st.none() | st.text(alphabet='data"\\[]{}:,1 ', max_size=12) | NUMBER_LISTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["data", "shape", 'x"data', "data\\", "metadata"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


def restored(value: object, arrays: list[memoryview]) -> object:
    """Put detached arrays back into a decoded document."""
    match value:
        case {**members}:
            return {
                key: json.loads(bytes(arrays[member[0]]))
                if key == "data" and isinstance(member, list) and only_numbers(member)
                else restored(member, arrays)
                for key, member in members.items()
            }
        case list():
            return [restored(element, arrays) for element in value]
    return value


def only_numbers(value: object) -> bool:
    if isinstance(value, list):
        return all(map(only_numbers, value))
    return value is None or isinstance(value, int | float)


@given(DOCUMENTS, st.sampled_from(SEPARATORS))
@example({"data": [[], ""]}, (",", ":"))  # brackets, and a string behind them
def test_detached_arrays_put_back_give_the_document(
    value: object, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, separators=separators)

    document, arrays = json_numbers.detach(text.encode(), "data", 1000)

    assert repr(restored(json.loads(document), arrays)) == repr(json.loads(text))


def count_values(value: object) -> int:
    match value:
        case list():
            return max(1, len(value)) + sum(map(count_values, value))
        case dict():
            return max(1, len(value)) + sum(map(count_values, value.values()))
    return 0


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=100),
        lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=60,
    )
)
def test_scan_counts_what_the_json_module_finds(value: object) -> None:
    text = json.dumps(value).encode()
    elements = count_values(value)

    json_numbers.scan(text, 100, elements, 10000)

    if elements > 0:
        with pytest.raises(JsonTooManyElements):
            json_numbers.scan(text, 100, elements - 1, 10000)


def test_many_threads_at_once() -> None:
    array = np.random.default_rng(1).random(20000).astype(np.float32)
    text = json.dumps(array.tolist()).encode()
    wrong: list[int] = []

    def work() -> None:
        for attempt in range(20):
            json_numbers.scan(text, 8, 10**6, 10)
            back = parse(text, "FP32", array.size)
            if not same_bits(back, array) or len(json_numbers.dump(back)) < array.size:
                wrong.append(attempt)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
