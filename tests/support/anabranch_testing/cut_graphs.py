"""A model whose lookups were cut out by hand, its store, and what it answers by plain Python.

Its answer for a row is `x`, the rows of both `items`, the row of `code` modulo 10, the user's age,
and twice the row of the user: numbers that are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.cut_models import USER_INDEX, CutModel, cut_model
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.store import Capacity, Segment, SegmentBuilder, StoreWriter
from anabranch_testing.graphs import write_graph
from anabranch_wire.lookups import Ids, Lookup, Output, Side
from anabranch_wire.missing import Original
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanTable, Source
from anabranch_wire.tensors import TensorSpec

__all__ = [
    "INPUTS",
    "ITEMS",
    "USERS",
    "USER_NAMES",
    "WIDTH",
    "CutRequest",
    "change_items",
    "cut_graphs",
    "cut_parts",
    "cut_plan",
    "cut_store",
    "view_of_store",
]

ITEMS: Final = 20
"""Rows of table 0, [i, i + 0.5]."""
USERS: Final = 8
"""Rows of table 1, [100 u, 100 u + 1, 100 u + 2]."""
WIDTH: Final = 1 + 3 * 2 + 1 + 3
USER_NAMES: Final = ("user", "age")

INPUTS: Final = (
    TensorSpec("items", "INT64", (-1, 2)),
    TensorSpec("user", "INT64", (-1,)),
    TensorSpec("x", "FP32", (-1, 1)),
    TensorSpec("code", "INT64", (-1,)),
    TensorSpec("age", "FP32", (-1, 1)),
)
_OUTPUTS: Final = (TensorSpec("y", "FP32", (-1, WIDTH)),)

Named = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class CutRequest:
    """A request in numbers.

    Attributes:
        items: two for each row.
        user: one for each row, or one for all.
        x: one for each row.
        code: one for each row.
        age: as many as users.
    """

    items: Sequence[tuple[int, int]]
    user: Sequence[int]
    x: Sequence[float]
    code: Sequence[int]
    age: Sequence[float]

    @classmethod
    def random(cls, rng: np.random.Generator, rows: int, *, one_user: bool = False) -> "CutRequest":
        """Make one up."""
        users = 1 if one_user else rows
        return cls(
            items=[tuple(pair) for pair in rng.integers(0, ITEMS, (rows, 2)).tolist()],
            user=rng.integers(0, USERS, users).tolist(),
            x=rng.integers(0, 1000, rows).tolist(),
            code=rng.integers(0, 10_000, rows).tolist(),
            age=rng.integers(18, 99, users).tolist(),
        )

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.x)

    def named(self) -> Named:
        """Return its arrays by name, as they are sent."""
        return {
            "items": np.array(self.items, np.int64).reshape(-1, 2),
            "user": np.array(self.user, np.int64),
            "x": np.array(self.x, np.float32).reshape(-1, 1),
            "code": np.array(self.code, np.int64),
            "age": np.array(self.age, np.float32).reshape(-1, 1),
        }

    def admitted(self) -> tuple[NDArray[np.generic], ...]:
        """Return its arrays in the order of the inputs; what was sent once is one row in memory."""
        named = self.named()
        for name in USER_NAMES:
            array = named[name]
            named[name] = np.broadcast_to(array, (self.rows, *array.shape[1:]))
        return tuple([named[spec.name] for spec in INPUTS])

    def answer(self, add: float = 0.0) -> NDArray[np.float32]:
        """What the model answers, (rows, WIDTH), where `add` was added to all rows of items."""
        lines: list[list[float]] = []
        for row, x in enumerate(self.x):
            user = row if len(self.user) == self.rows else 0
            line = [x]
            for item in (*self.items[row], self.code[row] % 10):
                line += [item % ITEMS + add, item % ITEMS + 0.5 + add]
            u = 100 * self.user[user]
            lines.append([*line, self.age[user], 2 * u, 2 * u + 2, 2 * u + 4])
        return np.array(lines, np.float32).reshape(-1, WIDTH)


def cut_plan(*, user_once: bool = True) -> Plan:
    """Return the plan; without `user_once` users are looked up for each row."""

    def lookup(table: int, name: str, column: int, ids: int, side: Side = "row") -> Lookup:
        buffer = 1 if side == "user" else 0
        output = Output(buffer=buffer, column=column)
        return Lookup(
            table=table, side=side, ids=Ids(input=name), combiner="none", max_length=ids,
            output=output,
        )  # fmt: skip

    def table(name: str, rows: int, dim: int) -> PlanTable:
        return PlanTable(
            name=name, file="tables/0000.seg", rows=rows, dim=dim, dtype="f32", keys="dense_id",
            missing=Original(),
        )  # fmt: skip

    own = [Buffer(name="ab_user", side="user", dtype="f32", columns=3)] if user_once else []
    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash="sha256:" + "0" * 64,
        graphs=Graphs(
            dense="dense.onnx", prelude="prelude.onnx", user="user.onnx" if user_once else None
        ),
        tables=(table("items", ITEMS, 2), table("users", USERS, 3)),
        buffers=(
            Buffer(name="ab_rows", side="row", dtype="f32", columns=6 if user_once else 9),
            *own,
        ),
        lookups=(
            lookup(0, "items", 0, 2),
            lookup(0, "ab_ids_0", 4, 1),
            lookup(1, "user", 0, 1, "user") if user_once else lookup(1, "user", 6, 1),
        ),
        pass_through=("x",) if user_once else ("x", "age"),
        weights={},
    )


def cut_parts(
    folder: Path, *, user_once: bool = True
) -> tuple[DenseModel, DenseModel, DenseModel | None]:
    """Write the graphs of the model into folders in `folder`: dense, prelude, user."""
    prelude = part_model(
        write_graph(
            folder / "prelude",
            "ids (int64[N] code) => (int64[N, 1] ab_ids_0) "
            "<int64 ten = {10}, int64[2] shape = {-1, 1}> "
            "{ small = Mod(code, ten) \n ab_ids_0 = Reshape(small, shape) }",
        ),
        (TensorSpec("code", "INT64", (-1,)),),
        (TensorSpec("ab_ids_0", "INT64", (-1, 1)),),
    )
    x = TensorSpec("x", "FP32", (-1, 1))
    age = TensorSpec("age", "FP32", (-1, 1))
    if not user_once:
        path = write_graph(
            folder / "dense",
            f"dense (float[N, 1] x, float[N, 1] age, float[N, 9] ab_rows) => (float[N, {WIDTH}] y) "
            "<float two = {2.0}, int64[2] parts = {6, 3}> "
            "{ items, own = Split <axis: int = 1> (ab_rows, parts) \n twice = Mul(own, two) \n"
            " y = Concat <axis: int = 1> (x, items, age, twice) }",
        )
        rows = TensorSpec("ab_rows", "FP32", (-1, 9))
        return part_model(path, (x, age, rows), _OUTPUTS), prelude, None
    path = write_graph(
        folder / "dense",
        f"dense (float[N, 1] x, float[N, 6] ab_rows, float[U, 4] ab_once_0, int64[N] {USER_INDEX})"
        f" => (float[N, {WIDTH}] y) {{ own = Gather(ab_once_0, {USER_INDEX}) \n"
        " y = Concat <axis: int = 1> (x, ab_rows, own) }",
    )
    dense = part_model(
        path,
        (
            x,
            TensorSpec("ab_rows", "FP32", (-1, 6)),
            TensorSpec("ab_once_0", "FP32", (-1, 4)),
            TensorSpec(USER_INDEX, "INT64", (-1,)),
        ),
        _OUTPUTS,
    )
    user = part_model(
        write_graph(
            folder / "user",
            "user (float[U, 1] age, float[U, 3] ab_user) => (float[U, 4] ab_once_0) "
            "<float two = {2.0}> { twice = Mul(ab_user, two) \n"
            " ab_once_0 = Concat <axis: int = 1> (age, twice) }",
        ),
        (age, TensorSpec("ab_user", "FP32", (-1, 3))),
        (TensorSpec("ab_once_0", "FP32", (-1, 4)),),
    )
    return dense, prelude, user


def cut_graphs(
    folder: Path, *, user_once: bool = True, rows: RowLayout | None = None
) -> DenseModel:
    """Write the model and return it."""
    dense, prelude, user = cut_parts(folder, user_once=user_once)
    users = USER_NAMES if user_once else ()
    cut: CutModel = cut_model(cut_plan(user_once=user_once), INPUTS, dense, prelude, user, users)
    layout = rows or RowLayout(True, 1, (0,) * len(INPUTS), (0,))
    return DenseModel(dense.path, INPUTS, _OUTPUTS, layout, cut=cut)


def cut_store(folder: Path, add: float = 0.0) -> StoreWriter:
    """Make a store with the rows of the model, `add` added to those of items."""
    folder.mkdir(parents=True, exist_ok=True)
    items = (np.arange(ITEMS)[:, None] + np.array([[add, add + 0.5]])).astype(np.float32)
    users = (100 * np.arange(USERS)[:, None] + np.arange(3)).astype(np.float32)
    with SegmentBuilder(folder, "tables.seg") as builder:
        for name, values in (("items", items), ("users", users)):
            table = builder.table(name, values.shape[1], keys="dense_id", rows=len(values))
            table.add(None, values)
        builder.finish()
    segment = Segment.open(folder / "tables.seg")
    return StoreWriter.create(segment, [Capacity(4 * ITEMS, ITEMS), Capacity(4 * USERS, USERS)])


def change_items(writer: StoreWriter, add: float) -> StoreView:
    """Make a version in which `add` is added to every row of items as first written."""
    items = np.arange(ITEMS, dtype=np.int64)
    values = items[:, None] + np.array([[add, add + 0.5]])
    with writer.begin() as change:
        change.upsert(0, items, values.astype(np.float32))
        change.apply()
    return view_of_store(writer)


def view_of_store(writer: StoreWriter) -> StoreView:
    """What a reader reads now."""
    return StoreView(writer.generation, writer.version)
