"""The other processes of `lookup.py`: a writer that works beside the reader, and more readers.

Words that reader and writer share: the version to read, which the writer publishes, and the lease,
the oldest version that the reader may still read, which only rises. So the floor below which rows
are reclaimed is the lease.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Capacity, FeatureArrays, Generation, Segment, StoreWriter
from anabranch_wire.errors import Unavailable
from lookup_material import SEED, aligned, check, keys_of, numbers_of, uniform
from lookup_requests import plan_of
from store_children import Channel, play

__all__ = [
    "CURRENT",
    "LEASE",
    "MODULE",
    "WORDS",
    "Hold",
    "Holding",
    "Kind",
    "Opening",
    "Ready",
    "Start",
    "Timing",
    "Work",
    "Worked",
    "held",
]

MODULE: Final = Path(__file__)
WORDS: Final = 2
CURRENT: Final = 0
LEASE: Final = 1

Kind = Literal["deltas", "memory"]
"""What the writer does: apply deltas, or only write memory, as a control."""

_DELTAS: Final = 16
_MEMORY_BYTES: Final = 256 << 20
_RETRY_S: Final = 0.0002
_FIRST_VERSION: Final = 1


class Start(msgspec.Struct, frozen=True):
    """To the writer, with the shared words: make a generation over a segment of one table.

    Attributes:
        path: the segment.
        delta_rows: rows of each delta, drawn at random.
        spare_deltas: room beyond one new row for each key.
    """

    path: str
    delta_rows: int
    spare_deltas: int


class Ready(msgspec.Struct, frozen=True):
    """From the writer, with the generation."""

    version: int


class Work(msgspec.Struct, frozen=True):
    """To the writer: work without a pause.

    Attributes:
        kind: which work.
        seconds: for how long.
    """

    kind: Kind
    seconds: float


class Worked(msgspec.Struct, frozen=True):
    """From the writer.

    Attributes:
        deltas: how many were applied.
        rows: changed by them.
        apply_s: CPU time from `begin` to the end of `apply`, all deltas.
        reclaim_s: CPU time of reclaiming.
    """

    deltas: int
    rows: int
    apply_s: float
    reclaim_s: float


class Hold(msgspec.Struct, frozen=True):
    """To a reader, with the generation: map everything and read every row."""

    path: str


class Holding(msgspec.Struct, frozen=True):
    """From a reader: its share of what it maps of the store, as the kernel tells (PSS)."""

    segment_bytes: int
    generation_bytes: int


class Opening(msgspec.Struct, frozen=True):
    """To a reader, with the generation: open the segment and look up two batches.

    Attributes:
        path: the segment.
        table_rows: of its only table.
        batch_rows: of each batch.
        populate: map every page first.
    """

    path: str
    table_rows: int
    batch_rows: int
    populate: bool


class Timing(msgspec.Struct, frozen=True):
    """From a reader: seconds since before the segment was opened.

    Attributes:
        opened_s: until both are mapped.
        first_s: until the first batch is answered.
        second_s: until the second one is.
    """

    opened_s: float
    first_s: float
    second_s: float


def _write(channel: Channel) -> None:
    """Be the writer until the parent ends."""
    start, [words_fd] = channel.receive(Start)
    words = SharedWords.open(words_fd, writable=True)
    writing = _Writing.over(start, words)
    channel.send(Ready(writing.writer.version), writing.writer.fd)
    memory = np.zeros(_MEMORY_BYTES // 8)
    while True:
        work, _ = channel.receive(Work)
        if work.kind == "deltas":
            channel.send(writing.work(work.seconds))
        else:
            end = time.perf_counter() + work.seconds
            while time.perf_counter() < end:
                memory += 1.0
            channel.send(Worked(0, 0, 0.0, 0.0))


@dataclass(frozen=True, slots=True)
class _Writing:
    """A writer, and deltas that it applies in turn."""

    writer: StoreWriter
    words: SharedWords
    deltas: tuple[NDArray[np.uint64], ...]
    values: NDArray[np.float32]

    @classmethod
    def over(cls, start: Start, words: SharedWords) -> "_Writing":
        segment = Segment.open(Path(start.path), residency="populated")
        [table] = segment.tables
        room = table.rows + start.spare_deltas * start.delta_rows
        writer = StoreWriter.create(segment, [Capacity(arena_rows=room, keys=table.rows)])
        words.store(CURRENT, writer.version)
        words.store(LEASE, writer.version)
        rng = np.random.default_rng(SEED + 1)
        deltas = (uniform(rng, table.rows, start.delta_rows) for _ in range(_DELTAS))
        values = numbers_of(np.arange(start.delta_rows), table.dim)
        return cls(writer, words, tuple(keys_of(0, numbers) for numbers in deltas), values)

    def work(self, seconds: float) -> Worked:
        """Apply deltas back to back, one at least."""
        applied = rows = 0
        apply_s = reclaim_s = 0.0
        end = time.perf_counter() + seconds
        while not applied or time.perf_counter() < end:
            begin = time.thread_time()
            self.writer.reclaim(self.words.load(LEASE))
            between = time.thread_time()
            try:
                with self.writer.begin() as change:
                    change.upsert(0, self.deltas[applied % _DELTAS], self.values)
                    rows += change.counts.updated
                    change.apply()
            except Unavailable:  # the reader is behind: its rows wait
                time.sleep(_RETRY_S)
                continue
            self.words.store(CURRENT, self.writer.version)
            applied += 1
            apply_s += time.thread_time() - between
            reclaim_s += between - begin
        return Worked(applied, rows, apply_s, reclaim_s)


def _hold(channel: Channel) -> None:
    """Map a store, touch all of it, and say what it takes, once for each question."""
    hold, [fd] = channel.receive(Hold)
    segment = Segment.open(Path(hold.path), residency="populated")
    generation = Generation.map(fd, segment)
    os.close(fd)
    while generation.bytes:  # mapped until the parent ends
        channel.send(held(Path(hold.path).name))
        channel.receive(Hold)


def held(name: str) -> Holding:
    """Sum this process's shares of the segment of that file name and of shared memory."""
    shares = {"segment": 0, "generation": 0}
    mapping = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            path = words[5] if len(words) > 5 else ""
            mapping = None
            if Path(path).name == name:
                mapping = "segment"
            elif path.startswith("/memfd:"):
                mapping = "generation"
        elif words[0] == "Pss:" and mapping is not None:
            shares[mapping] += int(words[1]) << 10
    return Holding(shares["segment"], shares["generation"])


def _open(channel: Channel) -> None:
    """Time the first batches of a process that has mapped nothing yet."""
    opening, [fd] = channel.receive(Opening)
    numbers = uniform(np.random.default_rng(SEED), opening.table_rows, 2 * opening.batch_rows)
    batches = np.split(keys_of(0, numbers).view(np.int64), 2)
    ends = [time.perf_counter()]
    segment = Segment.open(
        Path(opening.path), residency="populated" if opening.populate else "lazy"
    )
    generation = Generation.map(fd, segment, populate=opening.populate)
    ends.append(time.perf_counter())
    plan = plan_of(generation, [0])
    out = aligned(opening.batch_rows, segment.tables[0].dim)
    for ids in batches:
        plan.run(plan.arguments([FeatureArrays(ids)], [out]), _FIRST_VERSION, opening.batch_rows)
        ends.append(time.perf_counter())
    check("the first lookup", out, numbers_of(np.split(numbers, 2)[1], out.shape[1]))
    channel.send(Timing(*(end - ends[0] for end in ends[1:])))


if __name__ == "__main__":
    play({"write": _write, "hold": _hold, "open": _open})
