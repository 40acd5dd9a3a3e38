"""S6 and S7: a reader beside a writer that never pauses, and how fast that writer is.

Reader and writer are processes on different cores where there are two. What the reader would feel
of any neighbour that uses the memory is measured as well, by one that only writes memory.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

import rows as results
from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Generation, Segment
from lookup_child import (
    CURRENT,
    LEASE,
    MODULE,
    WORDS,
    Kind,
    Ready,
    Start,
    Work,
    Worked,
)
from lookup_material import SEED, SegmentSpec, TableSpec, make_segment, uniform
from lookup_requests import Requests, single_table
from lookup_rounds import ratios
from lookup_run import DISTRIBUTIONS, Run
from store_children import Child, started

__all__ = ["IDS", "change_rows"]

IDS: Final = frozenset({"S6", "S7"})

_DIM: Final = 32
_BATCH_ROWS: Final = 1000
_BATCHES: Final = 200
_DELTA_SHARE: Final = 0.01
_SPARE_DELTAS: Final = 8
_NEIGHBOURS: Final[tuple[tuple[str, Kind], ...]] = (("quiet", "deltas"), ("calm", "memory"))
_LATER_S: Final = 0.3
"""A neighbour works this much longer than it is looked at, and is looked at this much later."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reader's side."""

    requests: Requests
    words: SharedWords

    def times_us(self, seconds: float) -> NDArray[np.float64]:
        """Look up batch after batch; return the CPU time of each."""
        run, arguments, rows = self.requests.plan.run, self.requests.arguments, self.requests.rows
        times: list[int] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            batch = arguments[len(times) % len(arguments)]
            version = self.words.load(CURRENT)
            begin = time.thread_time_ns()
            run(batch, version, rows)
            times.append(time.thread_time_ns() - begin)
            self.words.store(LEASE, version)
        return np.array(times) / 1e3


@dataclass(slots=True)
class _Percentiles:
    """p50 and p99 of each round, microseconds."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)

    def add(self, times_us: NDArray[np.float64]) -> None:
        """Add a round."""
        p50, p99 = np.percentile(times_us, [50, 99])
        self.p50.append(float(p50))
        self.p99.append(float(p99))


def change_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure the wanted ones of S6 and S7."""
    rows = run.size(4_000_000, 20_000)
    with _beside_a_writer(run, rows) as (reading, writer):
        if "S6" in wanted:
            yield from _reader_rows(run, reading, writer, rows)
        if "S7" in wanted:
            yield _writer_row(run, writer, reading, rows)


@contextmanager
def _beside_a_writer(run: Run, rows: int) -> Iterator[tuple[_Reading, Child]]:
    path = make_segment(run.scratch, SegmentSpec(TableSpec(rows, _DIM)))
    words = SharedWords.create(WORDS)
    with started(MODULE, "write", core=run.writers_core) as writer:
        start = Start(str(path), int(rows * _DELTA_SHARE), _SPARE_DELTAS)
        _, [fd] = writer.ask(start, Ready, words.fd)
        generation = Generation.map(fd, Segment.open(path, residency="populated"))
        numbers = uniform(np.random.default_rng(SEED), rows, _BATCHES * _BATCH_ROWS)
        requests = single_table(generation, numbers.reshape(_BATCHES, _BATCH_ROWS))
        yield _Reading(requests, words), writer


def _reader_rows(run: Run, reading: _Reading, writer: Child, rows: int) -> Iterator[results.Row]:
    """S6: each round quiet, beside deltas, quiet again, beside the control."""
    seconds = run.size(2.0, 0.2)
    seen = {name: _Percentiles() for name in ("quiet", "deltas", "calm", "memory")}
    worked: list[Worked] = []
    reading.times_us(seconds)
    for _ in range(run.rounds):
        for quiet, kind in _NEIGHBOURS:
            seen[quiet].add(reading.times_us(seconds))
            writer.channel.send(Work(kind, seconds + 2 * _LATER_S))
            reading.times_us(_LATER_S)
            seen[kind].add(reading.times_us(seconds))
            while not writer.channel.is_readable():
                reading.times_us(0.01)
            worked.append(writer.channel.receive(Worked)[0])
    deltas = [one for one in worked if one.deltas]
    for name in ("p50", "p99"):
        control = ratios(getattr(seen["memory"], name), getattr(seen["calm"], name))
        goal = max(1.1, median(control) + 0.1)
        yield results.measured(
            "S6",
            f"reader's {name} while another process applies deltas of {_DELTA_SHARE:.0%} back to "
            f"back, {rows:,} rows, D={_DIM} f32, N={_BATCH_ROWS}",
            ratios(getattr(seen["deltas"], name), getattr(seen["quiet"], name)),
            goal=f"<= {goal:.3f}",
            yardstick=f"quiet: {median(getattr(seen['quiet'], name)):.1f} us CPU; beside a process "
            f"that only writes memory {median(control):.3f} of quiet (goal: 1.1, or that + 0.1)",
            figures={
                f"{name} us": median(getattr(seen["deltas"], name)),
                "deltas/s": sum(one.deltas for one in deltas)
                / (len(deltas) * (seconds + 2 * _LATER_S)),
                "beside memory writes x": median(control),
            },
            distributions=DISTRIBUTIONS,
        )


def _writer_row(run: Run, writer: Child, reading: _Reading, rows: int) -> results.Row:
    """S7: the reader only follows, so that nothing waits for it."""
    seconds = run.size(2.0, 0.2)
    rates, with_reclaim = [], []
    for number in range(run.rounds + 1):
        writer.channel.send(Work("deltas", seconds))
        while not writer.channel.is_readable():
            reading.words.store(LEASE, reading.words.load(CURRENT))
            time.sleep(0.0005)
        worked, _ = writer.channel.receive(Worked)
        if not number:
            continue  # the first deltas touch pages of the arena for the first time
        rates.append(worked.rows / worked.apply_s / 1e6)
        with_reclaim.append(worked.rows / (worked.apply_s + worked.reclaim_s) / 1e6)
    return results.measured(
        "S7",
        f"rows changed by a CPU second of the writer, deltas of {_DELTA_SHARE:.0%} of {rows:,} "
        f"rows, D={_DIM} f32",
        rates,
        goal=">= 8",
        unit="M rows/s",
        yardstick="CPU time from begin to the end of apply",
        figures={"reclaiming included M rows/s": median(with_reclaim)},
        distributions=DISTRIBUTIONS,
    )
