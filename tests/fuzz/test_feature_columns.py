"""Damaged columns through the native readers, against a plain reading of every one of them."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from anabranch_runtime.ranking.feature_program import ColumnLimits, FeatureProgram
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    HashPlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
)
from anabranch_runtime.ranking.requests import WireForm
from anabranch_testing.mutations import fuzz_cases, mutated
from anabranch_testing.sent_columns import ReadRow, read_json, read_message
from anabranch_wire.ranking import FLOAT32, INT64, Column

LIMITS = ColumnLimits(100_000, 100_000, 100_000)
HASH = HashPlan("xxh64", 1000)
BAG = RaggedPlan(100_000, "first", None, 0)
PADDED = RaggedPlan(4, "first", 4, 0)


def features_of(side: str, first_tensor: int) -> list[FeaturePlan]:
    """One feature of each form."""

    def feature(name: str, type: str, **more: object) -> FeaturePlan:
        where = {"values": (more.pop("sink"),)} if "sink" in more else {"keys": (f"{side}_{name}",)}
        return FeaturePlan(name=f"{side}_{name}", side=side, type=type, **where, **more)  # type: ignore[arg-type] # names of literals

    return [
        feature("int", "int64"),
        feature("float", "float32", sink=SinkPlan(first_tensor, 0)),
        feature("string", "string", transform=HASH),
        feature("pair", "float32", shape=(2,), sink=SinkPlan(first_tensor + 1, 0)),
        feature("ids", "int64", ragged=BAG),
        feature("series", "float32", ragged=PADDED, sink=SinkPlan(first_tensor + 2, 0)),
        feature("tags", "string", transform=HASH, ragged=BAG, weighted=True),
    ]


FEATURES = (*features_of("candidate", 0), *features_of("user", 3))
PLAN = RankingPlan(
    features=FEATURES,
    tensors=tuple(
        TensorFill(f"{side}_{name}", "FP32", (columns,), once=side == "user")
        for side in ("candidate", "user")
        for name, columns in (("one", 1), ("two", 2), ("four", 4))
    ),
    id="candidate_int",
    heads=("score",),
    weights=(1.0,),
    formula="head",
)

JSON_SEEDS = [
    text.encode()
    for text in (
        "[1, -2,3 , 9223372036854775807,\"-9\",null]",
        "[" + ",".join(str(n * 7919 % 100003 - 50000) for n in range(60)) + "]",
        "[" + ",".join(str(n * 7919 % 100003 / 64) for n in range(60)) + "]",
        "[0.1,1e39,3.4028235e38,1e-45,NaN,-Infinity,16777217,1.00000017881393432617187499]",
        json.dumps([f"item-{n}" for n in range(40)]),
        '["a","\\u00e9\\ud83d\\ude00","\\"\\\\\\/\\b\\f\\n\\r\\t","","é€😀",null]',
        '[-9223372036854775808,-9223372036854775809,"-9223372036854775808",18446744073709551615]',
        '[[1,2],{"ids":[3],"id":[4]}]',
        "[[1,2],[0.5,-0.0],null,[3,4]]",
        "[[1,2,3],[],{\"ids\":[4]},null,{\"ids\":[]}]",
        '[{"ids":["a","b"],"weights":[1,0.5]},["c"],{"weights":[2],"ids":["d"]}]',
        '{"ids":["a"],"weights":[2.5]}',
        "7", '"de"', "null", "[]", "[0.5,1.5]", "true", '"12"',
    )
]  # fmt: skip
JSON_TOKENS = [
    token.encode("utf-8", "surrogatepass")
    for token in (
        "[", "]", "{", "}", ",", ":", '"', "\\", "null", "true", "false", "NaN", "Infinity",
        "-Infinity", "-", "0", "1", "01", "1.0", "1e5", "e", ".", "-0", '"7"', '"1.0"',
        '" 1"', '""',
        "\\u0000", "\\ud800", "\\udc00", "\\ud83d\\ude00", '"ids":', '"weights":[1],', '"ids":[],',
        " ", "\n", "\t", "\x01", "\x00", "é", "\ud800", "9223372036854775808",
        "1e400", "[[[[", "]]]]",
    )
] + [b"\xff", b"\xc3", b"\xe2\x82", b"\xf4\x90\x80\x80"]  # fmt: skip


def message_seeds() -> Iterator[bytes]:
    """Columns of every form."""
    floats = np.array([0.5, -1, np.nan, 3e38], "<f4").tobytes()
    lengths = np.array([2, 0, 1, 1], "<u4").tobytes()
    ints = np.array([1, -2, 2**62, 7], "<i8").tobytes()
    for column in (
        Column(int64s=[1, -2, 300, 2**63 - 1]),
        Column(int64s=range(0, 3000, 17)),
        Column(type=INT64, raw=ints),
        Column(type=FLOAT32, raw=floats),
        Column(floats=[0.5, 1.5]),
        Column(strings=[b"a", b"", "é".encode(), b"dd"]),
        Column(int64s=[1, 2, 3, 4], lengths=lengths),
        Column(type=FLOAT32, raw=floats, lengths=lengths),
        Column(strings=[b"a", b"b", b"c", b"d"], lengths=lengths, weights=floats),
        Column(int64s=[7]),
        Column(strings=[b"de"]),
        Column(floats=[2.0]),
    ):
        yield column.SerializeToString()
    yield b"\x18\x05\x18\x06\x1a\x02\x07\x08"  # packed and not
    yield b"\x25\x00\x00\x00\x3f\x22\x04\x00\x00\x80\x3f"


MESSAGE_TOKENS = [
    *(bytes([tag]) for tag in range(64)),
    b"\x4b\x4c", b"\x4b\x08\x01\x53\x54\x4c", b"\x4b" * 101, b"\x4b" * 99 + b"\x4c" * 99,
    b"\x4b" * 100 + b"\x4c" * 100, b"\x4b" * 101 + b"\x4c" * 101,
    b"\x80", b"\x80\x00", b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x7f", b"\x80" * 10,
    b"\x88\x80\x80\x80\x00", b"\x88\x80\x80\x80\x80\x00", b"\xf8\xff\xff\xff\x0f\x01",
    b"\x12\x00", b"\x12\x80\x80\x80\x80\x08", b"\x12\x81\x80\x80\x80\x00", b"\x08\x01", b"\x08\x02",
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\x81\x80\x80\x80\x10",
    b"\x2a\x02\xc3\x28",
    b"\x2a\x03\xed\xa0\x80", b"\x32\x04\x01\x00\x00\x00",
    b"\x3a\x04\x00\x00\x80\x3f", b"\x1a\x01\x80",
]  # fmt: skip


@pytest.fixture(scope="module")
def program() -> FeatureProgram:
    return FeatureProgram(PLAN)


def check(
    program: FeatureProgram, data: bytes, form: WireForm, index: int, expected: list[ReadRow] | None
) -> bool:
    """Compare the native reading of a column; return whether it was one."""
    feature = FEATURES[index]
    read, faults = program.read(index, data, form, LIMITS)
    for fault in faults:
        assert re.fullmatch(r"expected .+, got .+", fault.text), fault.text
    if expected is None:
        assert [fault.row for fault in faults] == [None]
        return False
    assert [fault.row for fault in faults] == [
        row for row, one in enumerate(expected) if one.is_fault
    ]
    width = int(np.prod(feature.shape))
    blank = () if feature.ragged is not None else (b"" if feature.type == "string" else 0,) * width
    values = [value for row in expected for value in (row.values or blank)]
    if feature.ragged is not None:
        assert read.lengths is not None
        assert read.lengths.tolist() == [len(row.values) for row in expected]
    if feature.type == "string":
        assert read.offsets is not None
        text = read.values.tobytes()
        ends = read.offsets.tolist()
        assert [text[a:b] for a, b in pairwise(ends)] == values
    else:
        wanted = np.array(values, np.int64 if feature.type == "int64" else np.float32)
        assert read.values.dtype == wanted.dtype
        assert same(read.values, wanted)
    weights = np.array(
        [one for row in expected for one in (row.weights or (1.0,) * len(row.values))], np.float32
    )
    if read.weights is not None and len(read.weights):
        assert same(read.weights, weights)
    else:
        assert (weights == 1).all()
    missing = [row.is_missing for row in expected]
    found = [False] * len(expected) if read.missing is None else read.missing.astype(bool).tolist()
    assert (found or [False] * len(expected)) == missing
    return True


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether all numbers are, bit by bit, but that any NaN is like any other."""
    if found.dtype != np.float32:
        return np.array_equal(found, wanted)
    both = np.isnan(found) & np.isnan(wanted) if found.shape == wanted.shape else False
    return found.shape == wanted.shape and bool(
        (both | (found.view(np.uint32) == wanted.view(np.uint32))).all()
    )


@pytest.mark.parametrize(
    ("form", "seeds", "tokens", "reading"),
    [
        ("json", JSON_SEEDS, JSON_TOKENS, read_json),
        ("message", list(message_seeds()), MESSAGE_TOKENS, read_message),
    ],
)
def test_damaged_columns_are_read_as_their_format_has_it(
    program: FeatureProgram,
    form: WireForm,
    seeds: list[bytes],
    tokens: list[bytes],
    reading: Callable[[bytes, FeaturePlan], list[ReadRow] | None],
) -> None:
    columns = 0
    cases = [*seeds, *mutated(seeds, tokens, fuzz_cases())]
    for place, data in enumerate(cases):
        first, step = (0, 1) if place < len(seeds) else (place % 3, 3)
        for index in range(first, len(FEATURES), step):
            expected = reading(data, FEATURES[index])
            try:
                columns += check(program, data, form, index, expected)
            except AssertionError as error:
                raise AssertionError(f"{FEATURES[index].name}: {data!r}: {error}") from error
    assert columns > len(cases) / 10
