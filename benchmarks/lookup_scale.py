"""S12: many tables, many rows, two cores; each against the size that the other targets have."""

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

import rows as results
from anabranch_runtime.store import RowType
from lookup_material import (
    SEED,
    SegmentSpec,
    Store,
    TableSpec,
    check,
    numbers_of,
    open_store,
    uniform,
)
from lookup_requests import Bags, Requests, bags, plan_of, single_table
from lookup_rounds import interleaved, ratios
from lookup_run import DISTRIBUTIONS, Run

__all__ = ["IDS", "scale_rows"]

IDS: Final = frozenset({"S12"})

_DIM: Final = 16
_FEW: Final = (26, 26)
_MANY: Final = (300, 1000)
_REQUEST_ROWS: Final = 100
_BATCH_ROWS: Final = 1000
_F32_NEEDS_BYTES: Final = 16 << 30


def scale_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure S12, if wanted."""
    if not wanted & IDS:
        return
    yield _tables_row(run)
    base = open_store(run.scratch, SegmentSpec(TableSpec(run.size(10_000_000, 20_000), _DIM)))
    yield _cores_row(run, base)
    yield _rows_row(run)


def _tables_row(run: Run) -> results.Row:
    """Equal numbers of rows in all, so that only the number of tables and features differs."""
    total = run.size(3_000_000, 30_000)
    seen: dict[int, Requests] = {}
    for tables, features in (_FEW, _MANY):
        rows = total // tables
        store = open_store(run.scratch, SegmentSpec(TableSpec(rows, _DIM), tables))
        places = [feature % tables for feature in range(features)]
        rng = np.random.default_rng(SEED)
        requests = [
            Bags(tuple(uniform(rng, rows, _REQUEST_ROWS) for _ in places))
            for _ in range(run.size(max(1, 26_000 // features), 2))
        ]
        columns = features * _DIM
        bound = bags(plan_of(store.generation, places), places, requests, _REQUEST_ROWS, columns)
        bound.run(store.version)
        expected = [numbers_of(numbers, _DIM) for numbers in requests[-1].numbers]
        check(f"{tables} tables", bound.out, np.concatenate(expected, axis=1))
        seen[features] = bound
    times = interleaved(
        {str(features): partial(bound.run, 1) for features, bound in seen.items()}, run.rounds
    )
    each = {
        features: [one / (len(bound.arguments) * features) for one in times[str(features)]]
        for features, bound in seen.items()
    }
    few, many = each[_FEW[1]], each[_MANY[1]]
    return results.measured(
        "S12",
        f"time of one feature, {_MANY[0]} tables and {_MANY[1]:,} features in one call against "
        f"{_FEW[0]} tables and features, {total:,} rows in all, D={_DIM} f32, N={_REQUEST_ROWS}",
        ratios(many, few),
        goal="<= 1.3",
        yardstick=f"{_FEW[0]} tables, {1e6 * median(few):.2f} us a feature",
        figures={"us a feature": 1e6 * median(many)},
        distributions=DISTRIBUTIONS,
    )


def _rows_row(run: Run) -> results.Row:
    """Ten times the rows; as f16 where memory is short, then both."""
    small, large = run.size(10_000_000, 2000), run.size(100_000_000, 20_000)
    row_type: RowType = "f32" if _available_bytes() >= _F32_NEEDS_BYTES else "f16"
    seen = {}
    for rows in (small, large):
        store = open_store(run.scratch, SegmentSpec(TableSpec(rows, _DIM, row_type)))
        numbers = uniform(np.random.default_rng(SEED), rows, run.size(1_000_000, 4000))
        seen[rows] = single_table(store.generation, numbers.reshape(-1, _BATCH_ROWS))
        seen[rows].run(store.version)
        check(f"{rows:,} rows", seen[rows].out, numbers_of(numbers[-_BATCH_ROWS:], _DIM))
    times = interleaved(
        {"small": lambda: seen[small].run(1), "large": lambda: seen[large].run(1)}, run.rounds
    )
    ids = len(seen[small].arguments) * _BATCH_ROWS
    return results.measured(
        "S12",
        f"hashed lookup in {large:,} rows against {small:,}, D={_DIM} {row_type}, uniform",
        ratios(times["large"], times["small"]),
        goal="<= 1.3",
        yardstick=f"{small:,} rows, {1e9 * median(times['small']) / ids:.1f} ns/id",
        figures={"ns/id": 1e9 * median(times["large"]) / ids},
        distributions=DISTRIBUTIONS,
    )


def _cores_row(run: Run, store: Store) -> results.Row:
    """Two threads of one process, each with requests of its own; by the clock."""
    what = f"lookups/s of two threads on two cores against one, N={_BATCH_ROWS}, D={_DIM} f32"
    if run.readers_core == run.writers_core:
        return results.absent("S12", what, "this process may use one core only", goal=">= 1.8")
    rows = store.segment.tables[0].rows
    rng = np.random.default_rng(SEED)
    cores = (run.readers_core, run.writers_core)
    bound = [
        single_table(
            store.generation, uniform(rng, rows, run.size(1_000_000, 4000)).reshape(-1, _BATCH_ROWS)
        )
        for _ in cores
    ]
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(run.rounds):
        for threads, seen in rates.items():
            seconds = _in_threads(bound[:threads], cores[:threads], store.version)
            ids = sum(len(one.arguments) for one in bound[:threads]) * _BATCH_ROWS
            seen.append(ids / seconds)
    return results.measured(
        "S12",
        what,
        ratios(rates[2], rates[1]),
        goal=">= 1.8",
        yardstick=f"one thread, {median(rates[1]) / 1e6:.1f} M ids/s",
        figures={"M ids/s": median(rates[2]) / 1e6},
        distributions=DISTRIBUTIONS,
    )


def _in_threads(bound: list[Requests], cores: tuple[int, ...], version: int) -> float:
    """Run each of `bound` in a thread on its core; return the seconds until all are done."""
    begin = threading.Barrier(len(bound) + 1)

    def work(requests: Requests, core: int) -> None:
        os.sched_setaffinity(0, {core})  # of this thread
        begin.wait()
        requests.run(version)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(bound, cores, strict=True)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def _available_bytes() -> int:
    """Memory that can be used without pushing anything out, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
