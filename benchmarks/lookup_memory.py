"""S8 and S9: what a row costs beside its numbers, and how soon a process can answer."""

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Final

import rows as results
from lookup_child import MODULE, Hold, Holding, Opening, Timing, held
from lookup_material import SegmentSpec, Store, TableSpec, open_store
from lookup_rounds import ratios
from lookup_run import DISTRIBUTIONS, Run
from store_children import Child, started

__all__ = ["IDS", "memory_rows"]

IDS: Final = frozenset({"S8", "S9"})

_DIM: Final = 32
_BATCH_ROWS: Final = 1000
_READERS: Final = (1, 2, 3)


def memory_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure the wanted ones of S8 and S9."""
    spec = SegmentSpec(TableSpec(run.size(10_000_000, 20_000), _DIM))
    store = open_store(run.scratch, spec, arena_rows=run.size(100_000, 1000))
    if "S8" in wanted:
        yield _overhead_row(store)
        yield from _share_rows(run, store)
    if "S9" in wanted:
        yield from _opening_rows(run, store)


def _overhead_row(store: Store) -> results.Row:
    rows = store.segment.tables[0].rows
    used = store.writer.memory()
    parts = {
        "index": used.index,
        "undo links": used.undo,
        "writer's books": used.books,
        "touched arena": used.arena,
    }
    return results.measured(
        "S8",
        f"memory beside the rows, bytes a row, {rows:,} rows, D={_DIM} f32, nothing changed yet",
        [(used.index + used.undo + used.books) / rows],
        goal="<= 27",
        unit="B/row",
        yardstick=f"rows of {4 * _DIM} B in the segment",
        figures={f"{name} B/row": size / rows for name, size in parts.items()},
        distributions=DISTRIBUTIONS,
    )


def _share_rows(run: Run, store: Store) -> Iterator[results.Row]:
    """Sums of proportional shares over this process, the writer's, and so many readers."""
    totals: dict[int, list[int]] = {}
    hold = Hold(str(store.path))
    readers: list[Child] = []
    with ExitStack() as stack:
        for count in _READERS:
            readers.append(stack.enter_context(started(MODULE, "hold", core=None)))
            readers[-1].ask(hold, Holding, store.writer.fd)
            totals[count] = []
            for _ in range(run.rounds):
                everyone = [held(store.path.name)]
                everyone += [reader.ask(hold, Holding)[0] for reader in readers]
                totals[count].append(
                    sum(one.segment_bytes + one.generation_bytes for one in everyone)
                )
    for count in _READERS[1:]:
        yield results.measured(
            "S8",
            f"row memory of a writer and {count} readers against one reader, "
            f"{store.segment.tables[0].rows:,} rows, D={_DIM} f32",
            ratios(totals[count], totals[_READERS[0]]),
            goal="<= 1.01",
            yardstick="PSS of segment and generation with one reader, "
            f"{median(totals[_READERS[0]]) / 2**20:,.0f} MiB",
            figures={"MiB": median(totals[count]) / 2**20},
            distributions=DISTRIBUTIONS,
        )


def _opening_rows(run: Run, store: Store) -> Iterator[results.Row]:
    """S9: fresh processes, the file in the page cache, the generation there."""
    rows = store.segment.tables[0].rows
    seen: dict[bool, list[Timing]] = {False: [], True: []}
    for _ in range(run.rounds):
        for populate, timings in seen.items():
            with started(MODULE, "open", core=run.readers_core) as reader:
                opening = Opening(str(store.path), rows, _BATCH_ROWS, populate)
                timings.append(reader.ask(opening, Timing, store.writer.fd)[0])
    for populate, timings in seen.items():
        how = "everything mapped in first" if populate else "pages mapped as they are read"
        yield results.measured(
            "S9",
            f"from before opening a segment of {rows:,} rows, D={_DIM} f32, warm, to the answer of "
            f"the first batch of {_BATCH_ROWS}, {how}",
            [1e3 * one.first_s for one in timings],
            goal=None if populate else "<= 10",
            unit="ms",
            yardstick="a new process; the writer's generation is there",
            figures={
                "mapped ms": median(1e3 * one.opened_s for one in timings),
                "second batch ms": median(1e3 * (one.second_s - one.first_s) for one in timings),
            },
            distributions=DISTRIBUTIONS,
        )
