"""A model whose rows come from a store, and what it answers by plain Python.

Its answer for a row is `x`, the row of `city`, the weighted sum of the rows of `tags`, the rows of
both ids of `pair`, and the mean of the rows of the user's `clicks`: numbers that are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.lookups import lookups_of
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.store import Capacity, Segment, SegmentBuilder, StoreWriter
from anabranch_testing.graphs import write_graph
from anabranch_wire.lookups import Ids, Lengths, Lookup, Output, Values
from anabranch_wire.missing import Refuse, Zeros
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanTable, Source
from anabranch_wire.tensors import TensorSpec

__all__ = [
    "CITIES",
    "KEYS",
    "TAGS",
    "WIDTH",
    "Asked",
    "add_to_rows",
    "key_of",
    "looked_up_model",
    "looked_up_plan",
    "open_store",
    "view_of",
    "without",
]

KEYS: Final = 100
"""Numbers 0 to 99 have a row in each table; the row of a number depends on it alone."""

CITIES, TAGS = 0, 1
"""Tables of the store; a city without a row is an error, a tag without one is zeros."""

WIDTH: Final = 1 + 2 + 3 + 4 + 3

Named = dict[str, NDArray[np.generic]]


def key_of(number: int) -> int:
    """The signed 64-bit key of a number; keys of neighbours lie far apart."""
    key = number * 0x9E3779B97F4A7C15 % 2**64
    return key - 2**64 if key >= 2**63 else key


def city_row(number: int, add: float = 0.0) -> list[float]:
    """The row of a city."""
    return [number + add, number + 0.25 + add]


def tag_row(number: int, add: float = 0.0) -> list[float]:
    """The row of a tag."""
    if not 0 <= number < KEYS:
        return [0.0] * 3
    return [number + add, 2.0 * number + add, 3.0 * number + add]


@dataclass(frozen=True)
class Asked:
    """A request in numbers, which the store knows by their keys.

    Attributes:
        x: a number for each row.
        city: one for each row.
        tags: any for each row.
        weights: as many.
        pair: two for each row.
        clicks: any for each row, or for the one user of all rows.
    """

    x: Sequence[float]
    city: Sequence[int]
    tags: Sequence[Sequence[int]]
    weights: Sequence[Sequence[float]]
    pair: Sequence[tuple[int, int]]
    clicks: Sequence[Sequence[int]]

    @classmethod
    def random(cls, rng: np.random.Generator, rows: int, *, one_user: bool = False) -> "Asked":
        """Make one up; some tags have no row."""
        tags = [rng.integers(0, KEYS + 20, rng.integers(0, 5)).tolist() for _ in range(rows)]
        return cls(
            x=rng.integers(0, 1000, rows).tolist(),
            city=rng.integers(0, KEYS, rows).tolist(),
            tags=tags,
            weights=[rng.integers(0, 4, len(bag)).tolist() for bag in tags],
            pair=[tuple(rng.integers(0, KEYS, 2).tolist()) for _ in range(rows)],
            clicks=[
                rng.integers(0, KEYS, rng.choice([0, 1, 2, 4])).tolist()
                for _ in range(1 if one_user else rows)
            ],
        )

    def named(self, form: int = 0) -> Named:
        """Return its arrays by name; forms 0 to 3 have lengths or offsets of either type."""
        dtype = np.int64 if form < 2 else np.int32
        named: Named = {
            "x": np.array(self.x, np.float32).reshape(-1, 1),
            "city": _keys(self.city).reshape(-1, 1) if form % 2 else _keys(self.city),
            "pair": _keys([number for pair in self.pair for number in pair]).reshape(-1, 2),
            "tags.weights": np.array([w for bag in self.weights for w in bag], np.float32),
        }
        for name, bags in (("tags", self.tags), ("clicks", self.clicks)):
            named[name] = _keys([number for bag in bags for number in bag])
            lengths = [len(bag) for bag in bags]
            if form % 2:
                named[f"{name}.offsets"] = np.cumsum([0, *lengths], dtype=dtype)
            else:
                named[f"{name}.lengths"] = np.array(lengths, dtype)
        return named

    def answer(self, add: float = 0.0) -> NDArray[np.float32]:
        """What the model answers, (rows, WIDTH), where `add` was added to all numbers of rows."""
        rows: list[list[float]] = []
        for row, x in enumerate(self.x):
            tags = np.zeros(3)
            for number, weight in zip(self.tags[row], self.weights[row], strict=True):
                tags += weight * np.array(tag_row(number, add))
            clicks = self.clicks[row if len(self.clicks) > 1 or len(self.x) == 1 else 0]
            mean = np.mean([tag_row(n, add) for n in clicks], axis=0) if clicks else np.zeros(3)
            pair = [number for one in self.pair[row] for number in city_row(one, add)]
            rows.append([x, *city_row(self.city[row], add), *tags, *pair, *mean])
        return np.array(rows, np.float32).reshape(-1, WIDTH)


def looked_up_plan() -> Plan:
    """The plan of the model; `clicks` are looked up once for a user."""

    def lookup(name: str, table: int, column: int, **more: object) -> Lookup:
        side = "user" if name == "clicks" else "row"
        output = Output(buffer=1 if name == "clicks" else 0, column=column)
        fields = {"combiner": "sum", **more}
        return Lookup(table=table, side=side, ids=Ids(input=name), output=output, **fields)  # type: ignore[arg-type]  # of many types

    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash="sha256:" + "0" * 64,
        graphs=Graphs(dense="model.onnx"),
        tables=(
            PlanTable(
                name="cities", file="tables/0000.seg", rows=KEYS, dim=2, dtype="f32",
                keys="hashed", missing=Refuse(),
            ),
            PlanTable(
                name="tags", file="tables/0000.seg", rows=KEYS, dim=3, dtype="f32",
                keys="hashed", missing=Zeros(),
            ),
        ),
        buffers=(
            Buffer(name="rows", side="row", dtype="f32", columns=9),
            Buffer(name="user", side="user", dtype="f32", columns=3),
        ),
        lookups=(
            lookup("city", 0, 0),
            lookup(
                "tags", 1, 2, lengths=Lengths(input="tags.lengths"),
                weights=Values(input="tags.weights"), max_length=1000,
            ),
            lookup("pair", 0, 5, combiner="none", max_length=2),
            lookup(
                "clicks", 1, 0, combiner="mean", lengths=Lengths(input="clicks.lengths"),
                max_length=1000,
            ),
        ),
        pass_through=("x",),
        weights={},
    )  # fmt: skip


def looked_up_model(folder: Path, rows: RowLayout | None = None) -> DenseModel:
    """y = x beside all that was looked up; `user` stands first among the graph's inputs."""
    path = write_graph(
        folder,
        "looked (float[N, 3] user, float[N, 1] x, float[N, 9] rows) => (float[N, 13] y) "
        "{ y = Concat <axis: int = 1> (x, rows, user) }",
    )
    inputs = (
        TensorSpec("user", "FP32", (-1, 3)),
        TensorSpec("x", "FP32", (-1, 1)),
        TensorSpec("rows", "FP32", (-1, 9)),
    )
    return DenseModel(
        path,
        inputs,
        (TensorSpec("y", "FP32", (-1, WIDTH)),),
        rows or RowLayout(True, 1, (0, 0, 0), (0,)),
        lookups=lookups_of(looked_up_plan(), inputs),
    )


def open_store(folder: Path) -> StoreWriter:
    """A store with the rows of the model, at version 1."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = _keys(range(KEYS))
    with SegmentBuilder(folder, "tables.seg") as builder:
        for name, row in (("cities", city_row), ("tags", tag_row)):
            values = np.array([row(number) for number in range(KEYS)], np.float32)
            builder.table(name, values.shape[1], rows=KEYS).add(keys, values)
        builder.finish()
    segment = Segment.open(folder / "tables.seg")
    return StoreWriter.create(segment, [Capacity(8 * KEYS, 2 * KEYS)] * 2)


def add_to_rows(writer: StoreWriter, add: float) -> StoreView:
    """Make a version in which every row is its first one with `add` added."""
    keys = _keys(range(KEYS))
    with writer.begin() as change:
        for table, row in ((CITIES, city_row), (TAGS, tag_row)):
            values = [row(number, add) for number in range(KEYS)]
            change.upsert(table, keys, np.array(values, np.float32))
        change.apply()
    return view_of(writer)


def view_of(writer: StoreWriter) -> StoreView:
    """What a reader reads now."""
    return StoreView(writer.generation, writer.version)


def without(asked: Asked, row: int) -> Asked:
    """The same request with a city at `row` that the store does not have."""
    return replace(asked, city=[*asked.city[:row], KEYS + 7, *asked.city[row + 1 :]])


def _keys(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.array([key_of(number) for number in numbers], np.int64)
