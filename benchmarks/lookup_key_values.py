"""X10: key-value stores that users reach for, on the same keys and rows: CPU time and the clock.

A server such as Redis works in a process of its own, on the other core: its time is in the clock
only. 1,000,000 rows of 32 f32, popular keys often, batches of 1,000.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

import rows as results
from lookup_material import (
    SEED,
    SegmentSpec,
    TableSpec,
    check,
    keys_of,
    numbers_of,
    open_store,
    zipf,
)
from lookup_requests import single_table
from lookup_rounds import interleaved, ratios
from lookup_run import Run
from peers.store import Missing
from peers.store.key_values import KEY_VALUE_STORES, Contents, key_bytes

__all__ = ["IDS", "key_value_rows"]

IDS: Final = frozenset({"X10"})

_DIM: Final = 32
_BATCH_ROWS: Final = 1000
_DISTRIBUTIONS: Final = ("anabranch", "lmdb", "rocksdict", "redis", "hiredis")


def key_value_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure every key-value store that is here, if wanted."""
    if not wanted & IDS:
        return
    rows, batches = run.size(1_000_000, 2000), run.size(50, 2)
    store = open_store(run.scratch, SegmentSpec(TableSpec(rows, _DIM)))
    rng = np.random.default_rng(SEED)
    numbers = rng.permutation(rows)[zipf(rng, rows, batches * _BATCH_ROWS)]
    ours = single_table(store.generation, numbers.reshape(batches, _BATCH_ROWS))
    asked = [key_bytes(keys_of(0, batch)) for batch in numbers.reshape(batches, _BATCH_ROWS)]
    everything = np.arange(rows)
    contents = Contents(keys_of(0, everything), numbers_of(everything, _DIM))
    for name, opened in KEY_VALUE_STORES:
        title = f"{name}, {rows:,} rows, D={_DIM} f32, zipf, batches of {_BATCH_ROWS}"
        try:
            with (
                tempfile.TemporaryDirectory(dir=run.scratch) as folder,
                opened(Path(folder), contents) as answer,
            ):
                check(name, answer(asked), numbers_of(numbers[-_BATCH_ROWS:], _DIM))
                work: dict[str, Callable[[], object]] = {
                    "peer": partial(answer, asked),
                    "ours": partial(ours.run, store.version),
                }
                cpu = interleaved(work, run.rounds)
                clock = interleaved(work, run.rounds, clock=time.perf_counter_ns)
        except Missing as missing:
            yield results.absent("X10", f"{title}: CPU time over ours", str(missing))
            continue
        for what, times in (("the caller's CPU time", cpu), ("time by the clock", clock)):
            yield results.measured(
                "X10",
                f"{title}: {what} over ours",
                ratios(times["peer"], times["ours"]),
                yardstick=f"ours, hashed keys, {1e9 * median(times['ours']) / numbers.size:.1f} "
                "ns/id",
                figures={"ns/id": 1e9 * median(times["peer"]) / numbers.size},
                distributions=_DISTRIBUTIONS,
            )
