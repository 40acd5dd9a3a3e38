"""S13: after an hour of changes, compressed: memory, lookup time, and what growth does to readers.

360 million changed rows (100,000 a second for an hour; a tenth of them inserts, a tenth deletes) go
into a store of 2,000,000 live rows as fast as its writer can, with a new generation six times, all
beside a reader. In the end every row that was there at first is gone.
"""

import os
import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Final

import numpy as np

import rows as results
from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import FeatureArrays, Generation, Segment
from lookup_churner import (
    CURRENT,
    GENERATION_SHIFT,
    GROWING,
    LEASE,
    LOW,
    MODULE,
    WORDS,
    Churn,
    Churned,
    Progress,
)
from lookup_material import (
    SEED,
    SegmentSpec,
    TableSpec,
    aligned,
    check,
    keys_of,
    make_segment,
    numbers_of,
    open_store,
    uniform,
)
from lookup_requests import plan_of, single_table
from lookup_rounds import interleaved, ratios
from lookup_run import DISTRIBUTIONS, Run
from store_children import Channel, started

__all__ = ["IDS", "churn_rows"]

IDS: Final = frozenset({"S13"})

_DIM: Final = 32
_BATCH_ROWS: Final = 1000
_GROWTHS: Final = 6
_INDEX_BYTES: Final = 64 * 5 / 12
"""Of a row, at the load that an index is made with."""


class _Reader:
    """Reads the newest version of whatever generation is published, batch after batch."""

    def __init__(self, channel: Channel, words: SharedWords, segment: Segment) -> None:
        self._channel = channel
        self._words = words
        self._segment = segment
        self._rng = np.random.default_rng(SEED + 2)
        self._ids = np.zeros(_BATCH_ROWS, np.int64)
        self._out = aligned(_BATCH_ROWS, _DIM)
        self._take_message()
        self.missing = 0
        self.times_us: dict[tuple[int, bool], list[float]] = {}
        """(generation, whether the next one is being made) -> CPU time of each batch."""

    def follow(self) -> Churned:
        """Read until the writer has finished; afterwards `generation` is the last one."""
        while True:
            done = self._take_message() if self._channel.is_readable() else None
            if done is not None:
                return done
            self._read()

    def _take_message(self) -> Churned | None:
        progress, fds = self._channel.receive(Progress)
        for fd in fds:
            self.generation = Generation.map(fd, self._segment)
            os.close(fd)
            self._plan = plan_of(self.generation, [0])
            self._arguments = self._plan.arguments([FeatureArrays(self._ids)], [self._out])
        return progress.done

    def _read(self) -> None:
        """Look up one batch of rows that are there in every version of this moment."""
        word = self._words.load(CURRENT)
        generation, version = divmod(word, 1 << GENERATION_SHIFT)
        low, rows = self._words.load(LOW), self._segment.tables[0].rows
        numbers = self._rng.integers(low + rows // 10, low + rows - rows // 10, _BATCH_ROWS)
        self._ids[:] = keys_of(0, numbers).view(np.int64)
        growing = bool(self._words.load(GROWING))
        begin = time.thread_time_ns()
        self._plan.run(self._arguments, version, _BATCH_ROWS)
        spent = time.thread_time_ns() - begin
        self._words.store(LEASE, word)
        self.times_us.setdefault((generation, growing), []).append(spent / 1e3)
        self.missing = int(self._arguments.misses[0])


def churn_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure S13, if wanted."""
    if not wanted & IDS:
        return
    rows = run.size(2_000_000, 20_000)
    deltas, delta_rows = run.size(3600, 60), run.size(100_000, 1000)
    path = make_segment(run.scratch, SegmentSpec(TableSpec(rows, _DIM)))
    segment = Segment.open(path, residency="populated")
    words = SharedWords.create(WORDS)
    with started(MODULE, "churn", core=run.writers_core) as writer:
        writer.channel.send(Churn(str(path), delta_rows, deltas, _GROWTHS), words.fd)
        reader = _Reader(writer.channel, words, segment)
        done = reader.follow()
        if reader.missing:
            raise RuntimeError(f"{reader.missing} rows that must be there were missing")
        what = f"after {deltas} deltas of {delta_rows:,} rows (10% inserts, 10% deletes) into "
        what += f"{rows:,} live rows, D={_DIM} f32"
        yield _memory_row(what, done, segment)
        yield _growth_row(what, reader)
        yield _time_row(run, what, reader.generation, words)


def _memory_row(what: str, done: Churned, segment: Segment) -> results.Row:
    live_bytes = done.live_keys * (4 * _DIM + _INDEX_BYTES)
    return results.measured(
        "S13",
        f"memory of the generation over live bytes (rows, and index at a load of 0.6), {what}",
        [used / live_bytes for used in done.used_bytes],
        goal="<= 1.3",
        yardstick=f"{live_bytes / 2**20:,.0f} MiB live; the segment, of which no row is left, is "
        "not counted: its pages are the file's",
        figures={
            "segment MiB": segment.bytes / 2**20,
            "load": done.load,
            "groups a hit": done.mean_probe,
            "M rows/s of the writer": done.changed_rows / done.cpu_s / 1e6,
            "clock s": done.clock_s,
            "waits": float(done.waits),
        },
        distributions=DISTRIBUTIONS,
    )


def _growth_row(what: str, reader: _Reader) -> results.Row:
    """Each generation by itself: beside deltas and growth against beside deltas alone."""
    pairs = [
        (reader.times_us[number, True], reader.times_us[number, False])
        for number, growing in sorted(reader.times_us)
        if growing and (number, False) in reader.times_us
    ]
    p99 = [[float(np.percentile(times, 99)) for times in pair] for pair in pairs]
    return results.measured(
        "S13",
        f"reader's p99 while a new generation is made beside deltas against beside deltas alone, "
        f"{what}",
        [growing / alone for growing, alone in p99],
        goal="<= 1.1",
        yardstick=f"deltas alone: {median(alone for _, alone in p99):.1f} us CPU, N={_BATCH_ROWS}",
        figures={"batches beside growth": float(sum(len(pair[0]) for pair in pairs))},
        distributions=DISTRIBUTIONS,
    )


def _time_row(run: Run, what: str, churned: Generation, words: SharedWords) -> results.Row:
    """The same rows in the churned generation and in a segment that was just written."""
    rows, low = churned.tables[0].rows, words.load(LOW)
    fresh = open_store(run.scratch, SegmentSpec(TableSpec(rows, _DIM, first=low)))
    count = run.size(500, 4) * _BATCH_ROWS
    numbers = low + uniform(np.random.default_rng(SEED), rows, count).reshape(-1, _BATCH_ROWS)
    version = words.load(CURRENT) % (1 << GENERATION_SHIFT)
    bound = {
        "churned": (single_table(churned, numbers), version),
        "fresh": (single_table(fresh.generation, numbers), fresh.version),
    }
    for name, (requests, at) in bound.items():
        requests.run(at)
        check(f"the {name} store", requests.out, numbers_of(numbers[-1], _DIM))
    times = interleaved(
        {name: partial(requests.run, at) for name, (requests, at) in bound.items()}, run.rounds
    )
    return results.measured(
        "S13",
        f"lookup time against a store that was just written, {what}",
        ratios(times["churned"], times["fresh"]),
        goal="<= 1.1",
        yardstick=f"fresh segment, {1e9 * median(times['fresh']) / numbers.size:.1f} ns/id",
        figures={"ns/id": 1e9 * median(times["churned"]) / numbers.size},
        distributions=DISTRIBUTIONS,
    )
