"""Versions whose answers tell which rows they were computed from.

All rows of both tables hold one number, the marker; a score is the least and the greatest number
that was looked up. Where these differ, rows of two store versions have met in one batch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.store import Change, SegmentBuilder
from anabranch_server.processes.plans import (
    ArrayPlan,
    CapacityPlan,
    RowPlan,
    StorePlan,
    TensorPlan,
    VersionPlan,
)
from anabranch_testing.graphs import write_graph
from anabranch_wire.lookups import Ids, Lookup, Output
from anabranch_wire.missing import Zeros
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanTable, Source, encode

__all__ = [
    "DIM",
    "ROWS",
    "TABLES",
    "keys",
    "marked_plan",
    "marking",
    "marking_numbered",
    "write_marked_graph",
]

TABLES: Final = ("a", "b")
DIM: Final = 4
ROWS: Final = 256

_GRAPH: Final = (
    "marked (float[N, 8] emb) => (float[N, 1] low, float[N, 1] high) {"
    " low = ReduceMin <axes = [1], keepdims = 1> (emb)"
    " high = ReduceMax <axes = [1], keepdims = 1> (emb) }"
)


def keys(table: int) -> NDArray[np.int64]:
    """Return the keys (ROWS,) of a table; negative ones, 0 and -1 among them."""
    drawn = np.random.default_rng(table).integers(-(2**62), 2**62, ROWS, np.int64)
    drawn[:2] = (0, -1)
    return drawn


def marking(marker: float) -> Callable[[Change], None]:
    """Return what gives every row of both tables a marker."""

    def fill(change: Change) -> None:
        values = np.full((ROWS, DIM), marker, np.float32)
        for table in range(len(TABLES)):
            change.upsert(table, keys(table), values)

    return fill


def marking_numbered(marker: float) -> Callable[[Change], None]:
    """Return what gives every row of both tables a marker, where keys are row numbers."""

    def fill(change: Change) -> None:
        values = np.full((ROWS, DIM), marker, np.float32)
        for table in range(len(TABLES)):
            change.upsert(table, np.arange(ROWS, dtype=np.int64), values)

    return fill


def write_marked_graph(folder: Path) -> Path:
    """Write the graph that both features feed."""
    return write_graph(folder, _GRAPH)


def marked_plan(
    folder: Path,
    number: int,
    *,
    marker: float = 0.0,
    arena_rows: int = 4 * ROWS,
    model: str = "m",
) -> VersionPlan:
    """Write a version and return its plan.

    Args:
        folder: where to write it, in a folder of its own.
        number: its version.
        marker: of the rows as published.
        arena_rows: room for changed rows, of each table.
        model: model name.
    """
    place = folder / f"{model}-{number}"
    path = write_marked_graph(place)
    with SegmentBuilder(place, "rows.seg", model_version=number) as builder:
        for index, name in enumerate(TABLES):
            table = builder.table(name, DIM, rows=ROWS)
            table.add(keys(index), np.full((ROWS, DIM), marker, np.float32))
        size_bytes = builder.finish()
    ids = ArrayPlan("INT64", (2, 1), keys(0)[2:4].tobytes())
    return VersionPlan(
        model=model,
        version=number,
        delta=0,
        identity=f"{marker}",
        path=str(path),
        inputs=(TensorPlan("emb", "FP32", (-1, 2 * DIM)),),
        outputs=(TensorPlan("low", "FP32", (-1, 1)), TensorPlan("high", "FP32", (-1, 1))),
        rows=RowPlan(True, 1, (0,), (0, 0), "", True),
        user_inputs=(),
        description="",
        examples=(dict.fromkeys(TABLES, ids),),
        warm_rounds=1,
        weight_bytes=0,
        store=StorePlan(
            segment=str(place / "rows.seg"),
            segment_bytes=size_bytes,
            memory_bytes=size_bytes + 2 * arena_rows * DIM * 4,
            plan=encode(_plan()),
            capacities=(CapacityPlan(arena_rows, 2 * ROWS),) * len(TABLES),
        ),
    )


def _plan() -> Plan:
    tables = tuple(
        PlanTable(
            name=name, file="rows.seg", rows=ROWS, dim=DIM, dtype="f32", keys="hashed",
            missing=Zeros(),
        )
        for name in TABLES
    )  # fmt: skip
    lookups = tuple(
        Lookup(
            table=index, side="row", ids=Ids(input=name), combiner="none",
            output=Output(buffer=0, column=index * DIM),
        )
        for index, name in enumerate(TABLES)
    )  # fmt: skip
    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash="sha256:" + "0" * 64,
        graphs=Graphs(dense="model.onnx"),
        tables=tables,
        buffers=(Buffer(name="emb", side="row", dtype="f32", columns=2 * DIM),),
        lookups=lookups,
        weights={},
    )
