"""Programs of features against the plain reading of the contract, in every form of a column."""

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime.ranking.feature_program import (
    ColumnLimits,
    FeatureOutputs,
    FeatureProgram,
)
from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
    VocabularyPlan,
)
from anabranch_runtime.ranking.requests import ArrayColumn, Column, WireForm
from anabranch_testing.lengths import length
from anabranch_wire.errors import Corrupt, TooLarge, Unavailable
from drawn_features import (
    DrawnRequest,
    array_column,
    json_column,
    message_column,
    plans,
    requests,
)
from plain_features import (
    PlainFault,
    PlainOutputs,
    Row,
    arrays_differ,
    plain_outputs,
)

LIMITS = ColumnLimits(max_rows=65536, max_values=1_000_000, max_string_bytes=1 << 20)


def plan_of(features: Sequence[FeaturePlan], tensors: Sequence[TensorFill] = ()) -> RankingPlan:
    return RankingPlan(
        features=tuple(features), tensors=tuple(tensors), id="id", heads=("s",), weights=(1.0,),
        formula="head",
    )  # fmt: skip


def feature_of(name: str = "f", **changes: Any) -> FeaturePlan:
    """A candidate feature of int64 whose keys lookups read."""
    fields: dict[str, Any] = {"side": "candidate", "type": "int64", "keys": (name,)}
    return FeaturePlan(name=name, **(fields | changes))


def uint32(value: int) -> NDArray[np.uint32]:
    return np.array([value], np.uint32)


def run(
    plan: RankingPlan,
    columns: Sequence[Column | ArrayColumn | None],
    *,
    form: WireForm = "json",
    rows: int = 0,
) -> FeatureOutputs:
    return FeatureProgram(plan).run(columns, form, rows, LIMITS)


def one(feature: FeaturePlan, text: bytes, **changes: Any) -> FeatureOutputs:
    return run(plan_of([feature]), [text], **changes)


def same_faults(found: FeatureOutputs, expected: PlainOutputs) -> None:
    """Faults are the same, but for how values are shown."""
    shown = [(fault.feature, fault.row, fault.text.split(", got ")[0]) for fault in found.faults]
    assert shown == [(at, row, text.split(", got ")[0]) for at, row, text in expected.faults]
    for fault, (_, _, text) in zip(found.faults, expected.faults, strict=True):
        if re.fullmatch(r"[\w ,'-]+", text):
            assert fault.text == text


def same_outputs(found: FeatureOutputs, expected: PlainOutputs) -> None:
    assert found.rows == expected.rows
    same_faults(found, expected)
    assert arrays_differ(found.arrays, expected.arrays) == ""
    assert found.counts.tolist() == expected.counts


@st.composite
def cases(draw: st.DrawFn, *, nulls: bool) -> tuple[RankingPlan, DrawnRequest]:
    plan = draw(plans())
    return plan, draw(requests(plan, nulls=nulls))


def expected_of(
    plan: RankingPlan, request: DrawnRequest
) -> tuple[FeatureProgram, PlainOutputs] | None:
    """Program and plain outputs; None where the plan's default is at fault, for both."""
    try:
        expected = plain_outputs(plan, request.columns, request.rows)
    except PlainFault:
        with pytest.raises(ValueError, match="its default: expected"):
            FeatureProgram(plan)
        return None
    return FeatureProgram(plan), expected


@given(cases(nulls=True))
@pytest.mark.soak
@settings(max_examples=length(150, 5000))
def test_json_comes_to_what_the_contract_says(case: tuple[RankingPlan, DrawnRequest]) -> None:
    plan, request = case
    both = expected_of(plan, request)
    if both is None:
        return
    columns = [
        None if column is None else json_column(feature, column)
        for feature, column in zip(plan.features, request.columns, strict=True)
    ]

    found = both[0].run(columns, "json", request.rows, LIMITS)

    same_outputs(found, both[1])


@given(cases(nulls=False))
@pytest.mark.soak
@settings(max_examples=length(150, 5000))
def test_messages_come_to_what_the_contract_says(case: tuple[RankingPlan, DrawnRequest]) -> None:
    plan, request = case
    both = expected_of(plan, request)
    if both is None:
        return
    columns = [
        None if column is None else message_column(feature, column)
        for feature, column in zip(plan.features, request.columns, strict=True)
    ]

    found = both[0].run(columns, "message", request.rows, LIMITS)

    same_outputs(found, both[1])


@given(cases(nulls=True))
@pytest.mark.soak
@settings(max_examples=length(150, 5000))
def test_arrays_come_to_what_the_contract_says(case: tuple[RankingPlan, DrawnRequest]) -> None:
    plan, request = case
    both = expected_of(plan, request)
    if both is None:
        return
    columns = [
        None if column is None else array_column(feature, column)
        for feature, column in zip(plan.features, request.columns, strict=True)
    ]

    found = both[0].run(columns, "message", request.rows, LIMITS)

    same_outputs(found, both[1])


@given(cases(nulls=True))
@pytest.mark.soak
@settings(max_examples=length(60, 2000))
def test_what_was_read_is_what_runs(case: tuple[RankingPlan, DrawnRequest]) -> None:
    """A column that is read first, as for an item table, comes to the same as one sent at once."""
    plan, request = case
    both = expected_of(plan, request)
    if both is None:
        return
    program = both[0]
    read: list[ArrayColumn | None] = []
    for index, (feature, column) in enumerate(zip(plan.features, request.columns, strict=True)):
        if column is None:
            read.append(None)
            continue
        made, faults = program.read(index, json_column(feature, column), "json", LIMITS)
        assert not faults
        read.append(made)

    found = program.run(read, "json", request.rows, LIMITS)

    same_outputs(found, both[1])


def test_names_of_keys() -> None:
    bag = feature_of(
        "tags", type="string", ragged=RaggedPlan(3, "first", None, 0), weighted=True,
        transform=MultiHashPlan(10, ("xxh64", "farmhash_fingerprint64"), 0),
        keys=("tags.a", "tags.b"),
    )  # fmt: skip
    found = run(plan_of([bag, feature_of("id")]), [b'[["x","y"],[]]', b"[1,2]"])

    assert list(found.arrays) == [
        "tags.a", "tags.a.lengths", "tags.a.weights",
        "tags.b", "tags.b.lengths", "tags.b.weights",
        "id",
    ]  # fmt: skip
    assert found.arrays["tags.b.lengths"].tolist() == [2, 0]
    assert found.arrays["tags.a.weights"].tolist() == [1.0, 1.0]
    assert found.arrays["id"].tolist() == [1, 2]


def test_padded_features_of_lookups_are_not_padded() -> None:
    feature = feature_of(ragged=RaggedPlan(2, "last", 4, 0))

    found = one(feature, b"[[1,2,3],[4]]")

    assert found.arrays["f"].tolist() == [2, 3, 4]
    assert found.arrays["f.lengths"].tolist() == [2, 1]
    assert found.counts.tolist() == [[3, 0, 0, 1, 0]]


def test_values_of_a_user_are_repeated_beside_those_of_candidates() -> None:
    user = FeaturePlan(
        name="u", side="user", type="int64", values=(SinkPlan(0, 0),),
        lengths=SinkPlan(0, 3), ragged=RaggedPlan(3, "first", 3, 9),
    )  # fmt: skip
    price = FeaturePlan(name="p", side="candidate", type="float32", values=(SinkPlan(0, 4),))
    alone = FeaturePlan(name="a", side="user", type="float32", values=(SinkPlan(1, 0),))
    plan = plan_of(
        [user, price, alone],
        [TensorFill("X", "FP32", (5,), False), TensorFill("A", "FP32", (), True)],
    )

    found = run(plan, [b"[1,2]", b"[0.5,1.5]", b"7"])

    assert found.arrays["X"].tolist() == [[1, 2, 9, 2, 0.5], [1, 2, 9, 2, 1.5]]
    assert found.arrays["A"].tolist() == [7]


def test_no_candidates() -> None:
    price = FeaturePlan(name="p", side="candidate", type="float32", values=(SinkPlan(0, 0),))
    plan = plan_of([price, feature_of("u", side="user")], [TensorFill("X", "FP32", (1,), False)])

    found = run(plan, [b"[]", b"5"])

    assert found.rows == 0
    assert found.arrays["X"].shape == (0, 1)
    assert found.arrays["u"].tolist() == [5]
    assert found.faults == ()


def test_strings_of_a_graph_are_objects_of_bytes() -> None:
    text = FeaturePlan(name="t", side="candidate", type="string", values=(SinkPlan(0, 0),))
    plan = plan_of([text], [TensorFill("T", "BYTES", (1,), False)])

    found = run(plan, ['["größe",""]'.encode()])

    assert found.arrays["T"].dtype == np.object_
    assert found.arrays["T"].tolist() == [["größe".encode()], [b""]]


@pytest.mark.parametrize(
    ("datatype", "most"), [("FP16", 2**11), ("FP32", 2**24), ("FP64", 2**53), ("INT32", 2**31 - 1)]
)
def test_ids_that_a_tensor_does_not_hold_are_faults(datatype: str, most: int) -> None:
    least = -most - (datatype == "INT32")
    feature = FeaturePlan(name="f", side="candidate", type="int64", values=(SinkPlan(0, 0),))
    plan = plan_of([feature], [TensorFill("X", datatype, (), False)])

    found = run(plan, [f"[{most},{most + 1},{least},{least - 1}]".encode()])

    assert [(fault.row, fault.text) for fault in found.faults] == [
        (1, f"expected an integer from {least} to {most}, as {datatype} holds, got {most + 1}"),
        (3, f"expected an integer from {least} to {most}, as {datatype} holds, got {least - 1}"),
    ]
    assert found.arrays["X"].tolist() == [most, 0, least, 0]
    assert found.counts.tolist() == [[2, 0, 0, 0, 0]]


def test_texts_of_faults() -> None:
    words = VocabularyPlan(("red",), None, 0, None)
    numbers = VocabularyPlan((5,), None, 0, None)
    plan = plan_of(
        [
            feature_of("id"),
            feature_of("color", type="string", transform=words),
            feature_of("size", transform=numbers),
            feature_of("bag", ragged=RaggedPlan(1, "error", None, 0)),
            feature_of("gone"),
            feature_of("short"),
            feature_of("user", side="user"),
        ]
    )
    columns = [b"[1,null]", b'["blue","red"]', b"[5,6]", b"[[1,2],[]]", None, b"[1]", b"null"]

    found = run(plan, columns)

    assert [(fault.feature, fault.row, fault.text) for fault in found.faults] == [
        (0, 1, "expected a value, got null"),
        (1, 0, 'expected a value of the vocabulary, got "blue"'),
        (2, 1, "expected a value of the vocabulary, got 6"),
        (3, 0, "expected at most 1 values, got 2"),
        (4, None, "expected a value, got nothing"),
        (5, None, "expected 2 rows, as feature 'id' has, got 1"),
        (6, 0, "expected a value, got null"),
    ]


def test_boundaries_of_float32_features_are_float32() -> None:
    feature = feature_of(type="float32", transform=BucketizePlan((0.1, 0.7)))

    found = one(feature, b"[0.1, 0.7, 0.69, NaN, -Infinity]")

    assert found.arrays["f"].tolist() == [1, 2, 1, 2, 0]
    assert found.counts.tolist() == [[5, 0, 0, 0, 2]]


def test_quotients_are_floored() -> None:
    feature = feature_of(transform=MultiHashPlan(10, (), 0), keys=("f.q", "f.r"))

    found = one(feature, b"[-1, -10, 25, -9223372036854775808]")

    assert found.arrays["f.q"].tolist() == [-1, -1, 2, -922337203685477581]
    assert found.arrays["f.r"].tolist() == [9, 0, 5, 2]


def test_outputs_are_owned_by_whoever_called() -> None:
    program = FeatureProgram(plan_of([feature_of()]))
    first = program.run([b"[1,2,3]"], "json", 0, LIMITS)
    kept = first.arrays["f"]
    assert kept.flags.writeable

    for _ in range(100):
        program.run([b"[7,8,9]"], "json", 0, LIMITS)
    del first, program

    assert kept.tolist() == [1, 2, 3]


def test_limits_name_the_feature() -> None:
    program = FeatureProgram(
        plan_of([feature_of("words", type="string", transform=HashPlan("xxh64", 0))])
    )
    few = ColumnLimits(max_rows=2, max_values=2, max_string_bytes=3)

    with pytest.raises(TooLarge, match="feature 'words': "):
        program.run([b'["a","b","c"]'], "json", 0, few)
    with pytest.raises(TooLarge, match="feature 'words': "):
        program.run([b'["abcd"]'], "json", 0, few)
    with pytest.raises(TooLarge, match="feature 'words': "):
        program.read(0, b'["abcd"]', "json", few)
    with pytest.raises(TooLarge, match="3 candidates"):
        program.run([None], "json", 3, few)
    column = ArrayColumn(np.zeros(3, np.uint8), np.arange(4, dtype=np.int64))
    with pytest.raises(TooLarge, match="feature 'words': 3 rows, at most 2"):
        program.run([column], "json", 0, few)


@pytest.mark.parametrize("side", ["candidate", "user"])
def test_padding_makes_no_more_than_could_be_sent(side: str) -> None:
    width = 1 << 16
    hist = feature_of(
        "hist",
        side=side,
        keys=(),
        default=(),
        ragged=RaggedPlan(3, "first", width, 0),
        values=(SinkPlan(0, 0),),
    )
    once = side == "user"
    program = FeatureProgram(
        plan_of([feature_of("id"), hist], [TensorFill("x", "INT64", (width,), once)])
    )
    ids, rows = b"[" + b",".join([b"1"] * 100) + b"]", 1 if once else 100

    def made(max_values: int) -> FeatureOutputs:
        return program.run([ids, None], "json", 0, ColumnLimits(100, max_values, 3))

    assert made(rows * width).arrays["x"].shape == (rows, width)
    words = (
        f"input 'x': {rows} rows of {width} values are more than the limit of {rows * width - 1}"
    )
    with pytest.raises(TooLarge, match=f"^{words}$"):
        made(rows * width - 1)


@pytest.mark.parametrize(
    "column",
    [
        ArrayColumn(np.zeros(3, np.float32)),
        ArrayColumn(np.zeros(3, np.int64)),
        ArrayColumn(np.zeros(3, np.int64), lengths=uint32(1)),
        ArrayColumn(np.zeros(3, np.int64), lengths=uint32(3), weights=np.zeros(2, np.float32)),
        ArrayColumn(np.zeros(3, np.int64), lengths=uint32(3), missing=np.zeros(2, np.uint8)),
        ArrayColumn(np.zeros(3, np.int64), lengths=uint32(3), missing=np.ones(1, np.uint8)),
        ArrayColumn(np.zeros(3, np.uint8), np.array([0, 2, 1], np.int64)),
    ],
)
def test_arrays_that_contradict_themselves_are_refused(column: ArrayColumn) -> None:
    feature = feature_of(ragged=RaggedPlan(9, "error", None, 0), weighted=True)

    with pytest.raises(ValueError, match=r"feature 'f': |values: "):
        run(plan_of([feature]), [column])


def test_numbers_that_are_not_aligned_are_refused() -> None:
    values = np.frombuffer(bytes(17), np.int64, count=2, offset=1)

    with pytest.raises(ValueError, match="on multiples of their size"):
        run(plan_of([feature_of()]), [ArrayColumn(values)])


def test_offsets_outside_of_the_bytes_are_refused() -> None:
    plan = plan_of([feature_of(type="string", transform=HashPlan("xxh64", 0))])
    data = np.zeros(3, np.uint8)
    for offsets in ([0, 4], [-1, 2], [2, 1], [0, -5, 3], []):
        with pytest.raises(ValueError, match="feature 'f': offsets"):
            run(plan, [ArrayColumn(data, np.array(offsets, np.int64))])


def test_vocabularies_in_files(tmp_path: Path) -> None:
    words, numbers = tmp_path / "words.txt", tmp_path / "numbers.txt"
    words.write_text("ios\n\nandroid", encoding="utf-8")
    numbers.write_text("-5\n0\n9223372036854775807\n", encoding="utf-8")
    plan = plan_of(
        [
            feature_of("w", type="string", transform=VocabularyPlan((), str(words), 1, 0)),
            feature_of("n", transform=VocabularyPlan((), str(numbers), 0, -1)),
        ]
    )

    found = run(plan, [b'["android","","ios","web"]', b"[9223372036854775807,-5,0,1]"])

    assert found.arrays["w"].tolist() == [3, 2, 1, 0]
    assert found.arrays["n"].tolist() == [2, 0, 1, -1]
    assert found.counts[:, 2].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "at least one line"),
        (b"1\n2\n1\n", "line 3: the same value as line 1"),
        (b"1\r\n2\r\n", "line 1: ends with a carriage return"),
        (b"1\n\xff\n", "line 2: expected UTF-8"),
        (b"1\nx\n", "line 2: expected an int64"),
        (b"1\n\n2\n", "line 2: expected an int64"),
        (b"01\n", "line 1: expected an int64"),
        (b"-0\n", "line 1: expected an int64"),
        (b"9223372036854775808\n", "line 1: expected an int64"),
        ("\u0661\n".encode(), "line 1: expected an int64"),
    ],
)
def test_damaged_files_of_vocabularies(tmp_path: Path, data: bytes, text: str) -> None:
    file = tmp_path / "numbers.txt"
    file.write_bytes(data)
    plan = plan_of([feature_of(transform=VocabularyPlan((), str(file), 0, None))])

    with pytest.raises(Corrupt, match=text):
        FeatureProgram(plan)


def test_a_missing_file_of_a_vocabulary() -> None:
    plan = plan_of([feature_of(transform=VocabularyPlan((), "/nowhere/words.txt", 0, None))])

    with pytest.raises(Unavailable, match=r"'words\.txt' cannot be read"):
        FeatureProgram(plan)


X = TensorFill("X", "FP32", (2,), False)


@pytest.mark.parametrize(
    ("features", "tensors", "text"),
    [
        ([feature_of(values=(SinkPlan(0, 0),), keys=())], [X], "tensor 'X': expected features"),
        ([feature_of(values=(SinkPlan(0, 2),), keys=())], [X], "expected some that there are"),
        (
            [feature_of(values=(SinkPlan(0, 0), SinkPlan(0, 1)), keys=())],
            [X],
            "a place for each key",
        ),
        ([feature_of(n, values=(SinkPlan(0, 0),), keys=()) for n in "ab"], [X], "fills them too"),
        ([feature_of(values=(SinkPlan(1, 0),), keys=())], [X], "a tensor that there is"),
        ([feature_of(type="float32")], [], "a transform that makes keys"),
        ([feature_of(type="float32", transform=HashPlan("xxh64", 1))], [], "got float32"),
        ([feature_of(type="string", transform=BucketizePlan((1.0,)))], [], "got string"),
        ([feature_of(transform=BucketizePlan((2.0, 1.0)))], [], "rising"),
        ([feature_of(default=(1, 2))], [], "as many values"),
        ([feature_of(default=(1, 2), ragged=RaggedPlan(1, "error", None, 0))], [], "its default"),
        ([feature_of(ragged=RaggedPlan(2, "error", 1, 0))], [], "at least max_length"),
        ([feature_of(keys=("a", "b"))], [], "2 names of keys; expected 1"),
        ([feature_of(transform=MultiHashPlan(0, (), 0), keys=("a", "b"))], [], "at least 1"),
        ([feature_of(transform=VocabularyPlan((1, 1), None, 0, None))], [], "different values"),
        ([feature_of(transform=VocabularyPlan(("a",), None, 0, None))], [], "of type int64"),
        ([feature_of("a"), feature_of("b", keys=("a",))], [], "have one name"),
        ([], [TensorFill("U", "UINT8", (1,), False)], "'UINT8' is not available"),
    ],
)
def test_plans_that_contradict_themselves_are_refused(
    features: list[FeaturePlan], tensors: list[TensorFill], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        FeatureProgram(plan_of(features, tensors))


def test_as_many_columns_as_features() -> None:
    with pytest.raises(ValueError, match="expected 1 columns, got 2"):
        run(plan_of([feature_of()]), [b"[1]", b"[1]"])


def test_threads_share_a_program() -> None:
    feature = feature_of(type="string", transform=HashPlan("xxh64", 0), default=("d",))
    program = FeatureProgram(plan_of([feature]))
    columns: list[list[Row | None]] = [
        [Row((f"{thread}-{row}",)) if row % 3 else None for row in range(50 + thread)]
        for thread in range(4)
    ]
    expected = [plain_outputs(plan_of([feature]), [column], 0) for column in columns]
    failures: list[object] = []

    def work(thread: int) -> None:
        text = json_column(feature, columns[thread])
        for _ in range(300):
            found = program.run([text], "json", 0, LIMITS)
            difference = arrays_differ(found.arrays, expected[thread].arrays)
            if difference or found.counts.tolist() != expected[thread].counts:
                failures.append(difference)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
