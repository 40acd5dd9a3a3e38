"""Keys without a row, against what the store was given."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime.cut_models import CutModel, cut_model
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.lookups import lookups_of
from anabranch_runtime.models import part_model
from anabranch_runtime.ranking.missing_keys import all_missed, missing_keys
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
)
from anabranch_runtime.ranking.requests import Missed
from anabranch_runtime.ranking.rules import PreparedRanking
from anabranch_runtime.row_source import RowSource, StoreView
from anabranch_runtime.store import Capacity, Segment, SegmentBuilder, StoreWriter
from anabranch_testing.graphs import write_graph
from anabranch_testing.looked_up import (
    KEYS,
    TAGS,
    key_of,
    looked_up_plan,
    open_store,
    view_of,
)
from anabranch_testing.ranking_plans import asked
from anabranch_wire.lookups import Ids, Lookup, Output
from anabranch_wire.missing import Original, Zeros
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanTable, Source
from anabranch_wire.tensors import TensorSpec

Array = NDArray[np.generic]
Columns = tuple[int, int] | None

INPUTS = (
    TensorSpec("user", "FP32", (-1, 3)),
    TensorSpec("x", "FP32", (-1, 1)),
    TensorSpec("rows", "FP32", (-1, 9)),
)

RAGGED = RaggedPlan(1000, "error", None, 0)

LOOKED_UP = RankingPlan(
    features=(
        FeaturePlan(name="clicks", side="user", type="int64", ragged=RAGGED, keys=("clicks",)),
        FeaturePlan(
            name="labels", side="candidate", type="int64", ragged=RAGGED, weighted=True,
            keys=("tags",),
        ),
        FeaturePlan(name="both", side="candidate", type="int64", keys=("city", "pair")),
    ),
    tensors=(),
    id="both",
    heads=("y",),
    weights=(1.0,),
    formula="head",
)  # fmt: skip


def keys(numbers: list[int]) -> NDArray[np.int64]:
    return np.array([key_of(number) for number in numbers], np.int64)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    return open_store(tmp_path_factory.mktemp("store"))


def zeros_for_all() -> Plan:
    """The plan of the looked-up model, with zeros for cities without a row as well."""
    plan = looked_up_plan()
    tables = [msgspec.structs.replace(table, missing=Zeros()) for table in plan.tables]
    return msgspec.structs.replace(plan, tables=tuple(tables))


def source_of(plan: Plan, view: StoreView) -> RowSource:
    source = RowSource.of(lookups_of(plan, INPUTS), view)
    assert source is not None
    return source


def arrays_of(
    clicks: list[int], tags: list[list[int]], cities: list[int], pairs: list[tuple[int, int]]
) -> dict[str, Array]:
    return {
        "clicks": keys(clicks),
        "clicks.lengths": np.array([len(clicks)]),
        "tags": keys([tag for bag in tags for tag in bag]),
        "tags.lengths": np.array([len(bag) for bag in tags]),
        "tags.weights": np.ones(sum([len(bag) for bag in tags]), np.float32),
        "city": keys(cities),
        "pair": keys([number for pair in pairs for number in pair]),
    }


NUMBERS = st.integers(KEYS - 3, KEYS + 3)


@given(data=st.data(), rows=st.integers(0, 6))
def test_missing_keys_of_features_are_told_by_candidate(
    writer: StoreWriter, data: st.DataObject, rows: int
) -> None:
    clicks = data.draw(st.lists(NUMBERS, max_size=4))
    tags = [data.draw(st.lists(NUMBERS, max_size=3)) for _ in range(rows)]
    cities = [data.draw(NUMBERS) for _ in range(rows)]
    pairs = [data.draw(st.tuples(NUMBERS, NUMBERS)) for _ in range(rows)]
    bad = data.draw(st.sets(st.integers(0, 5), max_size=2))

    found = missing_keys(
        LOOKED_UP,
        arrays_of(clicks, tags, cities, pairs),
        source_of(zeros_for_all(), view_of(writer)),
        bad,
    )

    by_row = {
        "labels": tags,
        "both": [[city, *pair] for city, pair in zip(cities, pairs, strict=True)],
    }
    expected: dict[str, Missed] = {}
    if count := sum(number >= KEYS for number in clicks):
        expected["clicks"] = Missed(count, user=True)
    for name, numbers in by_row.items():
        counts = [
            0 if row in bad else sum(number >= KEYS for number in ones)
            for row, ones in enumerate(numbers)
        ]
        if sum(counts):
            positions = tuple(row for row, count in enumerate(counts) if count)
            expected[name] = Missed(sum(counts), user=False, candidates=positions)
    assert found == expected
    assert list(found) == [name for name in ("clicks", "labels", "both") if name in found]


def test_tables_that_refuse_are_not_asked(writer: StoreWriter) -> None:
    arrays = arrays_of([], [[]], [KEYS + 1], [(0, 0)])

    found = missing_keys(LOOKED_UP, arrays, source_of(looked_up_plan(), view_of(writer)))

    assert found == {}


def test_padding_is_no_key(writer: StoreWriter) -> None:
    plan = zeros_for_all()
    tables = [msgspec.structs.replace(table, padding_key=key_of(KEYS + 1)) for table in plan.tables]
    plan = msgspec.structs.replace(plan, tables=tuple(tables))
    arrays = arrays_of([KEYS + 1, KEYS + 2], [[KEYS + 1]], [0], [(0, 0)])

    found = missing_keys(LOOKED_UP, arrays, source_of(plan, view_of(writer)))

    assert found == {"clicks": Missed(1, user=True)}


def test_keys_are_missing_at_the_version_of_the_batch(tmp_path: Path) -> None:
    writer = open_store(tmp_path)
    before = view_of(writer)
    with writer.begin() as change:
        change.erase(TAGS, keys([3]))
        change.upsert(TAGS, keys([KEYS + 1]), np.ones((1, 3), np.float32))
        change.apply()
    after = view_of(writer)
    arrays = arrays_of([], [[3, KEYS + 1], [3, 4]], [0, 0], [(0, 0), (0, 0)])

    old = missing_keys(LOOKED_UP, arrays, source_of(zeros_for_all(), before))
    new = missing_keys(LOOKED_UP, arrays, source_of(zeros_for_all(), after))

    assert old == {"labels": Missed(1, user=False, candidates=(0,))}
    assert new == {"labels": Missed(2, user=False, candidates=(0, 1))}


def test_a_user_that_stands_for_each_candidate_counts_once(writer: StoreWriter) -> None:
    arrays = arrays_of([KEYS, KEYS], [[], []], [0, 0], [(0, 0), (0, 0)])
    arrays["clicks.lengths"] = np.array([1, 1])

    found = missing_keys(LOOKED_UP, arrays, source_of(zeros_for_all(), view_of(writer)))

    assert found == {"clicks": Missed(1, user=True)}


def test_no_store_has_no_missing_keys() -> None:
    assert missing_keys(LOOKED_UP, {}, None) == {}


# --- tables that were cut out of the graph --------------------------------------------------------

ROWS = 10

CUT_INPUTS = (
    TensorSpec("item", "INT64", (-1,)),
    TensorSpec("packed", "FP32", (-1, 5)),
    TensorSpec("user", "INT64", (-1, 1)),
)

PACKED = RankingPlan(
    features=(
        FeaturePlan(name="item", side="candidate", type="int64", values=(SinkPlan(0, 0),)),
        FeaturePlan(name="slot", side="candidate", type="int64", values=(SinkPlan(1, 0),)),
        FeaturePlan(
            name="seen", side="user", type="int64", ragged=RaggedPlan(3, "last", 3, 99),
            values=(SinkPlan(1, 1),), lengths=SinkPlan(1, 4),
        ),
        FeaturePlan(name="who", side="user", type="int64", values=(SinkPlan(2, 0),)),
    ),
    tensors=(
        TensorFill("item", "INT64", (), once=False),
        TensorFill("packed", "FP32", (5,), once=False),
        TensorFill("user", "INT64", (1,), once=True),
    ),
    id="item",
    heads=("y",),
    weights=(1.0,),
    formula="head",
)  # fmt: skip


def cut_plan(missing: Zeros | Original) -> Plan:
    def lookup(name: str, column: int, add: int = 0, columns: Columns = None) -> Lookup:
        return Lookup(
            table=0,
            side="row",
            ids=Ids(
                input=name,
                columns=columns,
                cast="truncate" if name == "packed" else "none",
                add=add,
            ),
            combiner="none",
            max_length=columns[1] - columns[0] if columns else 1,
            output=Output(buffer=0, column=column),
        )

    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash="sha256:" + "0" * 64,
        graphs=Graphs(dense="dense.onnx"),
        tables=(
            PlanTable(
                name="t", file="tables/0000.seg", rows=ROWS, dim=1, dtype="f32", keys="dense_id",
                missing=missing,
            ),
        ),
        buffers=(Buffer(name="ab_rows", side="row", dtype="f32", columns=6),),
        lookups=(
            lookup("item", 0),
            lookup("packed", 1, 2, (0, 1)),
            lookup("packed", 2, 0, (1, 4)),
            lookup("user", 5),
        ),
        pass_through=(),
        weights={},
    )  # fmt: skip


def cut_of(folder: Path, plan: Plan) -> CutModel:
    path = write_graph(
        folder, "dense (float[N, 6] ab_rows) => (float[N, 6] y) { y = Identity(ab_rows) }"
    )
    dense = part_model(
        path, (TensorSpec("ab_rows", "FP32", (-1, 6)),), (TensorSpec("y", "FP32", (-1, 6)),)
    )
    return cut_model(plan, CUT_INPUTS, dense)


def dense_view(folder: Path) -> StoreView:
    with SegmentBuilder(folder, "tables.seg") as builder:
        builder.table("t", 1, keys="dense_id", rows=ROWS).add(None, np.ones((ROWS, 1), np.float32))
        builder.finish()
    writer = StoreWriter.create(Segment.open(folder / "tables.seg"), [Capacity(8, 20)])
    return view_of(writer)


def cut_arrays(items: list[int], slots: list[int], seen: list[int], who: int) -> dict[str, Array]:
    padded = [*seen, *[99] * (3 - len(seen))]
    return {
        "item": np.array(items),
        "packed": np.array([[slot, *padded, len(seen)] for slot in slots], np.float32),
        "user": np.array([[who]]),
    }


def test_ids_outside_a_table_that_was_cut_out_are_missing(tmp_path: Path) -> None:
    source = CutSource.open(cut_of(tmp_path, cut_plan(Zeros())), dense_view(tmp_path))

    # Slots are looked up two rows further on; 99 is padding, and the last column is a length.
    found = missing_keys(PACKED, cut_arrays([0, 10, -1], [7, 8, 9], [3, 11], 10), source)

    assert found == {
        "item": Missed(2, user=False, candidates=(1, 2)),
        "slot": Missed(2, user=False, candidates=(1, 2)),
        "seen": Missed(1, user=True),
        "who": Missed(1, user=True),
    }


def test_what_the_graph_itself_would_refuse_is_never_missing(tmp_path: Path) -> None:
    source = CutSource.open(cut_of(tmp_path, cut_plan(Original())), dense_view(tmp_path))

    assert missing_keys(PACKED, cut_arrays([-1], [0], [], 0), source) == {}


def test_no_candidates_miss_nothing(tmp_path: Path) -> None:
    source = CutSource.open(cut_of(tmp_path, cut_plan(Zeros())), dense_view(tmp_path))
    arrays: dict[str, Array] = {
        "item": np.empty(0, np.int64),
        "packed": np.empty((0, 5), np.float32),
        "user": np.array([[0]]),
    }

    assert missing_keys(PACKED, arrays, source) == {}


def test_an_item_that_nothing_knows_is_missed_once(tmp_path: Path) -> None:
    source = CutSource.open(cut_of(tmp_path, cut_plan(Zeros())), dense_view(tmp_path))
    prepared = PreparedRanking(
        asked(),
        3,
        cut_arrays([0, 10, 11], [0, 0, 0], [], 0),
        ("y",),
        np.zeros((4, 5), np.int64),
        missed={"item": Missed(2, user=False, candidates=(0, 1))},
    )

    found = all_missed(PACKED, prepared, source)

    assert found == {"item": Missed(3, user=False, candidates=(0, 1, 2))}
