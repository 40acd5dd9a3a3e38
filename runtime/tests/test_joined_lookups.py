"""Rows of several tables in the same columns, against NumPy: merged, cut, padded, once per user."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.combined_lookups import Joint, join, separated
from anabranch_runtime.cut_models import cut_model
from anabranch_runtime.lookups import lookups_of
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings
from anabranch_runtime.store import Capacity, Segment, SegmentBuilder, StoreWriter
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import write_graph
from anabranch_testing.groups import Collector, Counts, MakeGroup, until_asleep
from anabranch_testing.looked_up import view_of
from anabranch_wire import plan as plans
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Ids, Lookup, Output
from anabranch_wire.missing import Vector, Zeros
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanTable, Source
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

NAMES: Final = ("q", "r", "s")
KEYS: Final = 20
DIM: Final = 4
MISSING: Final = {"q": [0.0] * DIM, "r": [0.5, 1.0, 2.0, 3.0], "s": [0.0] * DIM}
SHORT = TensorSpec("short", "FP16", (-1, DIM))
INPUTS = (
    TensorSpec("user", "FP32", (-1, DIM)),
    TensorSpec("x", "FP32", (-1, 1)),
    TensorSpec("rows", "FP32", (-1, 3 * DIM)),
    SHORT,
)

Array = NDArray[Any]


def row_of(table: str, key: int) -> list[float]:
    """The row of a key; sums and products of three are exact, also with 16 bits."""
    if not 0 <= key < KEYS:
        return MISSING[table]
    scale = {"q": 1.0, "r": 0.25, "s": -2.0}[table]
    return [scale * (key % 8 + place) for place in range(DIM)]


def rows_of(table: str, keys: Sequence[int]) -> NDArray[np.float32]:
    return np.array([row_of(table, key) for key in keys], np.float32).reshape(-1, DIM)


@dataclass(frozen=True)
class Asked:
    """Keys of a request: of each row by table, of the user, and of each row once more."""

    x: list[float]
    author: dict[str, list[int]]
    pair: dict[str, list[int]]
    city: dict[str, list[int]]
    plain: list[int]

    @classmethod
    def random(cls, rng: np.random.Generator, rows: int, *, one_user: bool = False) -> "Asked":
        def some(count: int) -> list[int]:
            return [int(key) for key in rng.integers(-2, KEYS + 2, count)]

        return cls(
            rng.integers(0, 9, rows).tolist(),
            {name: some(rows) for name in NAMES},
            {name: some(rows) for name in "qr"},
            {name: some(1 if one_user else rows) for name in "rs"},
            some(rows),
        )

    def named(self) -> dict[str, Array]:
        named: dict[str, Array] = {"x": np.array(self.x, np.float32).reshape(-1, 1)}
        for feature in ("author", "pair", "city"):
            for table, keys in getattr(self, feature).items():
                named[f"{feature}.{table}"] = np.array(keys, np.int64)
        named["plain"] = np.array(self.plain, np.int64)
        return named

    def answer(self) -> Array:
        """NumPy's reading: sum of three, one beside it, product of two, and the user's product."""
        summed = sum((rows_of(name, keys) for name, keys in self.author.items()))
        product = rows_of("q", self.pair["q"]) * rows_of("r", self.pair["r"])
        user = rows_of("r", self.city["r"]) * rows_of("s", self.city["s"])
        if len(user) == 1:
            user = np.repeat(user, len(self.x), axis=0)
        x = np.array(self.x, np.float32).reshape(-1, 1)
        short = rows_of("q", self.plain) + rows_of("s", self.pair_s)
        return np.concatenate([user, x, np.asarray(summed), self.beside, product, short], axis=1)

    @property
    def pair_s(self) -> list[int]:
        return self.author["s"]

    @property
    def beside(self) -> Array:
        return rows_of("q", self.plain)


def plan() -> Plan:
    def lookup(name: str, table: str, buffer: int, column: int, combine: Any = None) -> Lookup:
        return Lookup(
            table=NAMES.index(table), side="user" if buffer == 0 else "row", ids=Ids(input=name),
            combiner="none", output=Output(buffer=buffer, column=column), combine=combine,
        )  # fmt: skip

    digest = "0" * 64
    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256=digest),
        structure_hash=f"sha256:{digest}",
        graphs=Graphs(dense="model.onnx"),
        tables=tuple(
            PlanTable(
                name=name, file="t.seg", rows=KEYS, dim=DIM, dtype="f32", keys="hashed",
                missing=Zeros() if name != "r" else Vector(value=tuple(MISSING["r"])),
            )
            for name in NAMES
        ),
        buffers=(
            Buffer(name="user", side="user", dtype="f32", columns=DIM),
            Buffer(name="rows", side="row", dtype="f32", columns=3 * DIM),
            Buffer(name="short", side="row", dtype="f16", columns=DIM),
        ),
        lookups=(
            lookup("author.q", "q", 1, 0),
            lookup("city.r", "r", 0, 0),
            lookup("author.r", "r", 1, 0, "sum"),
            lookup("plain", "q", 1, DIM),
            lookup("pair.q", "q", 1, 2 * DIM),
            lookup("author.s", "s", 1, 0, "sum"),
            lookup("pair.r", "r", 1, 2 * DIM, "multiply"),
            lookup("city.s", "s", 0, 0, "multiply"),
            lookup("plain", "q", 2, 0),
            lookup("author.s", "s", 2, 0, "sum"),
        ),
        pass_through=("x",),
        weights={},
    )  # fmt: skip


def model(folder: Path, rows: RowLayout | None = None) -> DenseModel:
    path = write_graph(
        folder,
        "joined (float[N, 4] user, float[N, 1] x, float[N, 12] rows, float16[N, 4] short) "
        "=> (float[N, 21] y) "
        "{ wide = Cast <to: int = 1> (short) y = Concat <axis: int = 1> (user, x, rows, wide) }",
    )
    return DenseModel(
        path,
        INPUTS,
        (TensorSpec("y", "FP32", (-1, 5 * DIM + 1)),),
        rows or RowLayout(True, 1, (0, 0, 0, 0), (0,)),
        lookups=lookups_of(plan(), INPUTS),
    )


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    with SegmentBuilder(tmp_path, "t.seg") as builder:
        for name in NAMES:
            values = rows_of(name, range(KEYS))
            builder.table(name, DIM, rows=KEYS).add(np.arange(KEYS, dtype=np.int64), values)
        builder.finish()
    return StoreWriter.create(Segment.open(tmp_path / "t.seg"), [Capacity(8, 2 * KEYS)] * 3)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(9)


def load(
    group: SessionGroup, folder: Path, writer: StoreWriter, rows: RowLayout | None = None
) -> ServedVersion:
    example = Asked.random(np.random.default_rng(1), 5)
    return group.load(
        Snapshot("m", 1), model(folder, rows), [example.named()], warm_rounds=1,
        store=view_of(writer),
    )  # fmt: skip


def ticket_of(served: ServedVersion, sink: Collector, asked: Asked) -> Ticket:
    inputs, rows = served.rules.order(asked.named())
    return Ticket(ScoreRequest(inputs, rows, (), time.monotonic() + 30), served, sink)


def check(ticket: Ticket, asked: Asked) -> None:
    assert ticket.error is None
    assert ticket.outputs is not None
    np.testing.assert_array_equal(ticket.outputs[0], asked.answer())


@pytest.mark.parametrize(("rows", "one_user"), [(0, False), (1, False), (6, False), (6, True)])
def test_rows_of_several_tables_are_joined(
    make_group: MakeGroup,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    rows: int,
    one_user: bool,
) -> None:
    group = make_group()
    served = load(group, tmp_path, writer)
    for _ in range(3):  # memory that is used again holds nothing of the batch before
        sink = Collector()
        asked = Asked.random(rng, rows, one_user=one_user)
        group.submit(ticket_of(served, sink, asked))
        check(sink.wait(1)[0], asked)


def test_requests_that_met_are_joined_as_if_alone(
    make_group: MakeGroup,
    backend: GatedBackend,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group(batching=BatchSettings(max_rows=64, split_rows=0))
    served = load(group, tmp_path, writer)
    for _ in range(5):
        sink = Collector()
        others = [
            Asked.random(rng, rows, one_user=rows > 0 and bool(rng.integers(2)))
            for rows in rng.integers(0, 9, 7).tolist()
        ]
        backend.hold()
        group.submit(ticket_of(served, sink, Asked.random(rng, 1)))
        assert backend.entered.acquire(timeout=10)
        tickets = [ticket_of(served, sink, asked) for asked in others]
        for ticket in tickets:
            group.submit(ticket)
        backend.gate.set()
        sink.wait(8)

        assert counts.batches[-1][2] == 7
        for ticket, asked in zip(tickets, others, strict=True):
            check(ticket, asked)


@pytest.mark.parametrize("one_user", [False, True])
def test_a_request_that_is_cut_is_joined_in_parts(
    make_group: MakeGroup,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    one_user: bool,
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, split_rows=5))
    served = load(group, tmp_path, writer)
    sink = Collector()
    asked = Asked.random(rng, 17, one_user=one_user)
    until_asleep(group)

    group.submit(ticket_of(served, sink, asked))

    check(sink.wait(1)[0], asked)
    assert sorted(rows for _, rows, _ in counts.batches) == [5, 6, 6]


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_fill_a_batch_are_joined_once(
    make_group: MakeGroup,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    rows: int,
) -> None:
    group = make_group()
    served = load(group, tmp_path, writer, RowLayout(True, 4, (0, 0, 0, 0), (0,)))
    for _ in range(2):
        sink = Collector()
        asked = Asked.random(rng, rows)
        group.submit(ticket_of(served, sink, asked))
        check(sink.wait(1)[0], asked)


def test_keys_are_counted_by_table(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    served = load(group, tmp_path, writer)
    before = {name: count.keys for name, count in group.lookup_counts().items()}
    sink = Collector()
    group.submit(ticket_of(served, sink, Asked.random(rng, 6, one_user=True)))
    sink.wait(1)
    until_asleep(group)

    found = {
        name: count.keys - before.get(name, 0) for name, count in group.lookup_counts().items()
    }
    assert found["author.q", "q"] == 6
    assert found["author.s", "s"] == 12  # into two inputs
    assert found["city.s", "s"] == 1


# --- plans ---------------------------------------------------------------------------------------


def test_what_joins_gets_columns_of_its_own_beside_the_graph() -> None:
    found = separated(plan())

    assert [(one.name, one.columns, one.dtype, one.side) for one in found.scratch] == [
        ("ab_joined_rows", 3 * DIM, "f32", "row"),
        ("ab_joined_user", DIM, "f32", "user"),
        ("ab_joined_short", DIM, "f16", "row"),
    ]
    assert found.joints[:2] == (
        Joint("sum", 1, 0, 3, 0, DIM, False),
        Joint("sum", 1, 0, 3, DIM, DIM, False),
    )
    assert found.joints[3] == Joint("multiply", 0, 0, 4, 0, DIM, True)
    assert len(found.plan.lookups) == len(plan().lookups)
    assert [one.ids for one in found.plan.lookups] == [one.ids for one in plan().lookups]
    assert plans.decode(plans.encode(found.plan)) == found.plan


def test_scratch_has_a_name_that_nothing_else_has() -> None:
    taken = msgspec.structs.replace(plan(), pass_through=("x", "ab_joined_rows"))
    assert separated(taken).scratch[0].name == "ab_joined_rows_"


def test_a_plan_without_such_lookups_stays_as_it_is() -> None:
    alone = msgspec.structs.replace(
        plan(), lookups=tuple(one for one in plan().lookups if one.combine is None)
    )
    found = separated(alone)
    assert found.plan is alone
    assert (found.scratch, found.joints) == ((), ())


def test_numbers_beyond_their_type_join_without_a_warning() -> None:
    large = np.full((2, 1), 3e38, np.float32)
    buffers = [large, large.copy()]
    join([Joint("multiply", 0, 0, 1, 0, 1, False)], buffers, 1, 1)
    np.testing.assert_array_equal(buffers[0], [[np.inf], [np.float32(3e38)]])


@pytest.mark.parametrize(
    ("index", "output", "words"),
    [
        (2, Output(buffer=1, column=1), "columns 1 to 5 of 'rows'"),
        (2, Output(buffer=2, column=0), "columns 0 to 4 of 'short'"),  # written only later
    ],
)
def test_a_lookup_joins_exactly_what_an_earlier_one_wrote(
    index: int, output: Output, words: str
) -> None:
    lookups = list(plan().lookups)
    lookups[index] = msgspec.structs.replace(lookups[index], output=output)
    with pytest.raises(InvalidInput, match=f"lookups.{index}..combine: no earlier .* {words}"):
        msgspec.structs.replace(plan(), lookups=tuple(lookups))


def test_plans_of_cut_graphs_join_nothing(tmp_path: Path) -> None:
    whole = model(tmp_path)
    dense = part_model(whole.path, whole.inputs, whole.outputs)
    with pytest.raises(Unsupported, match="write columns of their own"):
        cut_model(plan(), INPUTS, dense)
