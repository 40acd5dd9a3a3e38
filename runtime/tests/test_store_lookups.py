import json
import platform
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Capacity,
    FeatureArrays,
    FeatureLookup,
    Generation,
    LookupBuffer,
    LookupPlan,
    Segment,
    SegmentBuilder,
    StoreWriter,
    compile_plan,
    instruction_sets,
)
from anabranch_wire import plan as plans
from anabranch_wire.errors import InvalidInput

DIM = 4
BUFFER = LookupBuffer(columns=DIM)


@pytest.fixture
def generation(tmp_path: Path) -> Generation:
    """A hashed table with keys 0..9 and a table of ten dense ids; row k holds k."""
    numbers = np.arange(10)
    values = np.repeat(numbers[:, None], DIM, axis=1).astype(np.float32)
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("hashed", DIM, rows=10).add(numbers.astype(np.uint64), values)
        builder.table("dense", DIM, keys="dense_id", rows=10).add(None, values)
        builder.finish()
    segment = Segment.open(tmp_path / "base.seg")
    return StoreWriter.create(segment, [Capacity(8, 14)] * 2).generation


def zeros(rows: int, columns: int = DIM) -> NDArray[np.float32]:
    return np.zeros((rows, columns), np.float32)


def test_a_run_reads_what_the_bound_arrays_hold_at_the_time(generation: Generation) -> None:
    plan = LookupPlan(generation, [FeatureLookup(feature="item", table=0)], [BUFFER])
    ids, output = np.array([3, 77, 4]), zeros(3)
    arguments = plan.arguments([FeatureArrays(ids)], [output])

    plan.run(arguments, 1, 3)
    assert list(output[:, 0]) == [3, 0, 4]
    ids[:] = 9, 8, 99
    plan.run(arguments, 1, 2)

    assert list(output[:, 0]) == [9, 8, 4]
    assert (list(arguments.keys), list(arguments.misses)) == ([5], [1])
    assert plan.isa in instruction_sets()


def test_other_arrays_take_the_place_of_a_features(generation: Generation) -> None:
    lookups = [
        FeatureLookup(feature="one", table=0),
        FeatureLookup(feature="many", table=1, bag="lengths", max_length=9, column=DIM),
    ]
    plan = LookupPlan(generation, lookups, [LookupBuffer(columns=2 * DIM)])
    output = zeros(2, 2 * DIM)
    many = FeatureArrays(np.array([1, 2, 3]), np.array([1, 2]))
    arguments = plan.arguments([FeatureArrays(np.array([5, 6])), many], [output])
    plan.run(arguments, 1, 2)
    assert output[:, [0, DIM]].tolist() == [[5, 1], [6, 5]]

    arguments.bind(1, np.array([9, 9, 9, 9]), np.array([0, 4]))
    with pytest.raises(InvalidInput, match="feature 'many', bag: expected int64, got int32"):
        arguments.bind(1, np.array([1]), np.array([1, 0], np.int32))
    plan.run(arguments, 1, 2)

    assert output[:, [0, DIM]].tolist() == [[5, 0], [6, 36]]
    with pytest.raises(InvalidInput, match="no feature 2: the plan has 2"):
        arguments.bind(2, np.array([1]))


def test_arguments_keep_the_arrays_they_are_bound_to(generation: Generation) -> None:
    plan = LookupPlan(generation, [FeatureLookup(feature="item", table=0)], [BUFFER])
    ids, output = np.array([3, 4]), zeros(2)
    held = sys.getrefcount(ids), sys.getrefcount(output)

    arguments = plan.arguments([FeatureArrays(ids)], [output])
    assert (sys.getrefcount(ids), sys.getrefcount(output)) == (held[0] + 1, held[1] + 1)
    with pytest.raises(ValueError, match="resize"):
        ids.resize(1000)
    arguments.bind(0, np.array([5, 6]))
    assert sys.getrefcount(ids) == held[0]
    del plan
    misses = arguments.misses
    del arguments

    assert list(misses) == [0]
    assert sys.getrefcount(output) == held[1] + 1  # the counts keep what they are counted in
    del misses
    assert sys.getrefcount(output) == held[1]


def test_no_more_rows_are_run_than_every_array_has(generation: Generation) -> None:
    lookups = [
        FeatureLookup(feature="a", table=0),
        FeatureLookup(feature="b", table=0, weighted=True, max_length=2, column=DIM),
    ]
    plan = LookupPlan(generation, lookups, [LookupBuffer(columns=2 * DIM)])

    def run(a: int, b: int, weights: int, out: int, rows: int) -> None:
        features = [
            FeatureArrays(np.ones(a, np.int64)),
            FeatureArrays(np.ones((b, 2), np.int64), None, np.ones(weights, np.float32)),
        ]
        plan.run(plan.arguments(features, [zeros(out, 2 * DIM)]), 1, rows)

    run(4, 4, 8, 4, 4)
    run(0, 0, 0, 0, 0)
    for few in [(3, 4, 8, 4), (4, 3, 8, 4), (4, 4, 7, 4), (4, 4, 8, 3)]:
        with pytest.raises(InvalidInput, match="rows 4, users 0: the arrays have 3"):
            run(*few, 4)
        run(*few, 3)
    with pytest.raises(InvalidInput, match="rows -1"):
        run(4, 4, 8, 4, -1)


@pytest.mark.parametrize(
    ("match", "ids", "bag", "weights"),
    [
        ("ids: expected int64 or uint64, got float32", np.ones((3, 2), np.float32), None, 1),
        ("ids: expected 2 on axis 1, got 3", np.ones((3, 3), np.int64), None, 1),
        ("ids: expected \\[rows, 2\\], got one axis", np.ones(6, np.int64), None, 1),
        ("ids: expected the ids of a row one after", np.ones((2, 6), np.int64).T, None, 1),
        ("ids: expected one or two axes", np.ones((3, 2, 1), np.int64), None, 1),
        ("ids: expected an array", [[1, 2]], None, 1),
        ("ids: expected int64 or uint64", np.ones((3, 2), ">i8"), None, 1),
        ("bag: its rows are of fixed length", np.ones((3, 2), np.int64), np.ones(3), 1),
        ("weights: missing", np.ones((3, 2), np.int64), None, 0),
    ],
)
def test_arrays_that_do_not_fit_name_their_feature(
    generation: Generation, match: str, ids: Any, bag: Any, weights: int
) -> None:
    lookup = FeatureLookup(feature="item", table=0, max_length=2, weighted=True)
    plan = LookupPlan(generation, [lookup], [BUFFER])
    factors = np.ones(6, np.float32) if weights else None

    with pytest.raises(InvalidInput, match=f"feature 'item', {match}"):
        plan.arguments([FeatureArrays(ids, bag, factors)], [zeros(3)])


def test_ids_off_their_boundary_are_refused(generation: Generation) -> None:
    plan = LookupPlan(generation, [FeatureLookup(feature="item", table=0)], [BUFFER])
    odd = np.zeros(25, np.uint8)[1:].view(np.int64)
    record = np.zeros(3, [("id", np.int64), ("rest", np.uint8)])["id"]

    for ids in (odd, record):
        with pytest.raises(InvalidInput, match="multiples of their size"):
            plan.arguments([FeatureArrays(ids)], [zeros(3)])


def test_outputs_are_checked_and_may_lie_apart(generation: Generation) -> None:
    plan = LookupPlan(generation, [FeatureLookup(feature="item", table=0)], [BUFFER])
    feature = [FeatureArrays(np.array([1, 2]))]
    fixed = zeros(2)
    fixed.flags.writeable = False
    refused: list[tuple[str, NDArray[Any]]] = [
        ("expected float32, got float64", zeros(2).astype(np.float64)),
        ("expected 4 on axis 1, got 5", zeros(2, 5)),
        ("an array that can be written", fixed),
        ("their columns one after another", zeros(DIM, 2).T),
        ("their columns one after another", zeros(2)[::-1]),
        ("expected two axes", zeros(2).ravel()),
    ]
    for match, output in refused:
        with pytest.raises(InvalidInput, match=f"output 0: .*{match}"):
            plan.arguments(feature, [output])
    with pytest.raises(InvalidInput, match="expected 1 features and 1 outputs, got 1 and 2"):
        plan.arguments(feature, [zeros(2), zeros(2)])

    wide = zeros(4, 10)
    plan.run(plan.arguments(feature, [wide[::2, 3:7]]), 1, 2)

    expected = zeros(4, 10)
    expected[0, 3:7], expected[2, 3:7] = 1, 2
    np.testing.assert_array_equal(wide, expected)


def test_rows_of_users_go_where_the_index_says(generation: Generation) -> None:
    lookups = [
        FeatureLookup(feature="user", table=0, side="user"),
        FeatureLookup(feature="item", table=0, column=DIM),
    ]
    plan = LookupPlan(generation, lookups, [LookupBuffer(columns=2 * DIM)])
    output = zeros(3, 2 * DIM)
    arguments = plan.arguments(
        [FeatureArrays(np.array([7, 8])), FeatureArrays(np.array([1, 2, 3]))], [output]
    )

    plan.run(arguments, 1, 3, users=2, user_index=np.array([1, 0, 1]))
    assert output[:, [0, DIM]].tolist() == [[8, 1], [7, 2], [8, 3]]
    plan.run(arguments, 1, 3, users=1)
    assert output[:, 0].tolist() == [7, 7, 7]

    for index in ([0, 1, 2], [0, -1, 0], [0, 0], [0, 0, 0, 0]):
        with pytest.raises(InvalidInput, match="user"):
            plan.run(arguments, 1, 3, users=2, user_index=np.array(index))
    short: Any = np.zeros(3, np.int32)
    with pytest.raises(InvalidInput, match="user_index: expected int64, got int32"):
        plan.run(arguments, 1, 3, users=2, user_index=short)
    with pytest.raises(InvalidInput, match="user index"):
        plan.run(arguments, 1, 3, users=2)
    with pytest.raises(InvalidInput, match="the arrays have 3 and 2"):
        plan.run(arguments, 1, 3, users=3, user_index=np.array([0, 0, 0]))


@pytest.mark.parametrize(
    "lookup",
    [
        FeatureLookup(feature="f", table=2),
        FeatureLookup(feature="f", table=0, buffer=1),
        FeatureLookup(feature="f", table=0, column=1),
        FeatureLookup(feature="f", table=0, combiner="none", max_length=2),
        FeatureLookup(feature="f", table=0, combiner="max", weighted=True),
        FeatureLookup(feature="f", table=0, missing="original"),
        FeatureLookup(feature="f", table=0, missing="vector", missing_row=(1.0,)),
        FeatureLookup(feature="f", table=0, max_length=0),
        FeatureLookup(feature="f", table=0, max_length=2**31),
        FeatureLookup(feature="f", table=0, bag="lengths", bag_type="float32"),
        FeatureLookup(feature="f", table=-1),
        FeatureLookup(feature="f", table=0, add=2**63),
        FeatureLookup(feature="f", table=0, combiner="median"),  # type: ignore[arg-type]  # to be refused, or a stand-in
    ],
    ids=lambda lookup: str([getattr(lookup, name) for name in FeatureLookup.__slots__][1:]),
)
def test_lookups_that_cannot_be_are_refused(generation: Generation, lookup: FeatureLookup) -> None:
    with pytest.raises(InvalidInput):
        LookupPlan(generation, [lookup], [BUFFER])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86 names its instruction sets there")
def test_every_instruction_set_of_the_processor_has_its_kernels() -> None:
    text = Path("/proc/cpuinfo").read_text()
    line = next(one for one in text.splitlines() if one.startswith("flags"))
    needed = {"avx2": {"avx2", "fma", "f16c", "bmi2"}}
    needed["avx512"] = needed["avx2"] | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
    flags = set(line.split())

    expected = [isa for isa in ("avx512", "avx2") if needed[isa] <= flags]

    assert list(instruction_sets()) == [*expected, "portable"]


def test_unknown_instruction_sets_and_versions_are_refused(generation: Generation) -> None:
    lookups = [FeatureLookup(feature="item", table=0)]
    with pytest.raises(InvalidInput, match="sse9"):
        LookupPlan(generation, lookups, [BUFFER], isa="sse9")
    plan = LookupPlan(generation, lookups, [BUFFER], isa="portable")
    arguments = plan.arguments([FeatureArrays(np.array([1]))], [zeros(1)])
    for version in (0, 2**31):
        with pytest.raises(InvalidInput, match=f"version {version}"):
            plan.run(arguments, version, 1)


def test_arguments_serve_the_plan_they_were_made_for(generation: Generation) -> None:
    lookups = [FeatureLookup(feature="item", table=0)]
    plan, other = (LookupPlan(generation, lookups, [BUFFER]) for _ in range(2))
    arguments = plan.arguments([FeatureArrays(np.array([1]))], [zeros(1)])

    with pytest.raises(InvalidInput, match="another plan"):
        other.run(arguments, 1, 1)


def test_arguments_in_use_are_not_bound_or_run_by_another_thread(generation: Generation) -> None:
    count = 1 << 20
    lookup = FeatureLookup(feature="many", table=0, bag="lengths", max_length=count)
    plan = LookupPlan(generation, [lookup], [BUFFER])
    many = np.ones(count, np.int64)
    output = zeros(1)
    arguments = plan.arguments([FeatureArrays(many, np.array([count]))], [output])
    refused = 0
    for _ in range(50):
        thread = threading.Thread(target=plan.run, args=(arguments, 1, 1))
        thread.start()
        while thread.is_alive():
            try:
                arguments.bind(0, many, np.array([count]))
            except RuntimeError:
                refused += 1
        thread.join()
        if refused:
            break

    assert refused
    assert output[0].tolist() == [count] * DIM


PLAN = {
    "format": 1,
    "source": {"file": "model.onnx", "sha256": "0" * 64},
    "structure_hash": "sha256:" + "0" * 64,
    "graphs": {"dense": "dense.onnx", "prelude": None, "user": None},
    "tables": [
        {
            "name": "dense",
            "file": "t.seg",
            "rows": 10,
            "dim": DIM,
            "dtype": "f32",
            "keys": "dense_id",
            "missing": {"policy": "original"},
        },
        {
            "name": "hashed",
            "file": "t.seg",
            "rows": 10,
            "dim": DIM,
            "dtype": "f32",
            "keys": "hashed",
            "missing": {"policy": "key", "key": 9},
            "padding_key": 5,
        },
    ],
    "buffers": [{"name": "rows", "side": "row", "dtype": "f32", "columns": 2 * DIM}],
    "lookups": [
        {
            "table": 0,
            "side": "row",
            "ids": {"input": "X", "columns": [1, 2], "cast": "truncate", "add": 3},
            "combiner": "none",
            "output": {"buffer": 0, "column": 0},
        },
        {
            "table": 1,
            "side": "row",
            "ids": {"input": "tags"},
            "combiner": "mean",
            "lengths": {"form": "offsets", "input": "tags.offsets"},
            "max_length": 10,
            "output": {"buffer": 0, "column": DIM},
        },
    ],
    "weights": {},
}


def plan_of(**changes: Any) -> plans.Plan:
    return plans.decode(json.dumps({**PLAN, **changes}).encode())


def test_a_plan_of_the_optimiser_is_compiled(generation: Generation) -> None:
    plan = compile_plan(plan_of(), generation, types={"tags.offsets": "int32"})
    packed = np.array([[9, 1.75], [9, -4.5]], np.float32)
    tags = FeatureArrays(np.array([1, 2, 5, 77]), np.array([0, 2, 4], np.int32))
    output = zeros(2, 2 * DIM)

    plan.run(plan.arguments([FeatureArrays(packed[:, 1:]), tags], [output]), 1, 2)

    # -4 + 3 counts from the end; 5 is padding, and 77 is missing.
    assert output[:, [0, DIM]].tolist() == [[4, 1.5], [9, 9]]
    packed[0, 1] = 7
    arguments = plan.arguments([FeatureArrays(packed[:, 1:]), tags], [output])
    with pytest.raises(InvalidInput, match=r"feature 'X\[1\]', row 0: key 10"):
        plan.run(arguments, 1, 2)


def test_padding_that_is_given_goes_before_the_plans(generation: Generation) -> None:
    plan = compile_plan(plan_of(), generation, {"hashed": 2})
    tags = FeatureArrays(np.array([1, 2, 5]), np.array([0]))
    output = zeros(1, 2 * DIM)

    plan.run(plan.arguments([FeatureArrays(np.zeros(1, np.float32)), tags], [output]), 1, 1)

    assert output[0, DIM] == 3  # of 1 and 5


def test_a_plan_for_other_tables_is_refused(generation: Generation) -> None:
    tables: Any = PLAN["tables"]
    changes: list[tuple[dict[str, Any], str]] = [
        ({"name": "other"}, "table 'other' of the plan is not in the store"),
        ({"dim": 3}, "the plan expects dim 3, the store has 4"),
        ({"dtype": "f16"}, "the plan expects dtype f16, the store has f32"),
        ({"keys": "hashed"}, "the plan expects keys hashed, the store has dense_id"),
    ]
    for change, match in changes:
        plan = plan_of(tables=[{**tables[0], **change}, tables[1]])
        with pytest.raises(InvalidInput, match=match):
            compile_plan(plan, generation)


def test_what_says_where_rows_go_is_no_output(generation: Generation) -> None:
    rows = 8
    memory = np.zeros((rows, DIM), np.float32)
    words = memory.reshape(-1).view(np.int64)
    apart = np.zeros(2 * DIM * rows, np.int64)
    bagged = LookupPlan(
        generation,
        [FeatureLookup(feature="f", table=0, bag="lengths", max_length=4)],
        [LookupBuffer(columns=DIM)],
    )
    ids = np.arange(1, 1 + rows)
    for bag in (words[:rows], words[-rows:], words[::-1][:rows][::-1]):
        with pytest.raises(InvalidInput, match=r"'f', bag: .* output 0"):
            bagged.arguments([FeatureArrays(ids, bag)], [memory])
    arguments = bagged.arguments([FeatureArrays(ids, apart[:rows])], [memory])
    with pytest.raises(InvalidInput, match="memory of its own"):
        arguments.bind(0, ids, words[:rows])

    shared = LookupPlan(
        generation,
        [FeatureLookup(feature="u", table=0, side="user")],
        [LookupBuffer(columns=DIM)],
    )
    arguments = shared.arguments([FeatureArrays(ids[:1])], [memory])
    with pytest.raises(InvalidInput, match=r"user_index: .* output 0"):
        shared.run(arguments, 1, rows, users=1, user_index=words[:rows])
    shared.run(arguments, 1, rows, users=1, user_index=apart[:rows])
    assert (memory == 1).all()
