"""The writer of S13: an hour of changes as fast as they go, with growth into new generations.

What is published is one word, `generation << 32 | version`, so a reader never reads one with the
other's version; its lease is the oldest such word that it may still read. Live rows are those with
numbers in [low, low + rows): each delta deletes at the low end, inserts behind the high one, and
rewrites rows in between.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Capacity, Growth, Segment, StoreWriter
from anabranch_wire.errors import Unavailable
from lookup_material import SEED, keys_of, numbers_of
from store_children import Channel, play

__all__ = [
    "CURRENT",
    "GENERATION_SHIFT",
    "GROWING",
    "LEASE",
    "LOW",
    "MODULE",
    "WORDS",
    "Churn",
    "Churned",
    "Progress",
]

MODULE: Final = Path(__file__)
WORDS: Final = 4
CURRENT: Final = 0
LEASE: Final = 1
LOW: Final = 2
"""Rows below this number may be deleted already in the newest version."""
GROWING: Final = 3
"""1 while a new generation is being made."""

GENERATION_SHIFT: Final = 32
_VERSION_MASK: Final = (1 << GENERATION_SHIFT) - 1
_STEP_ROWS: Final = 20_000
_RETRY_S: Final = 0.0002
_NEW_SHARE: Final = 0.1
_SPARE_DELTAS: Final = 3


class Churn(msgspec.Struct, frozen=True):
    """To the writer, with the shared words.

    Attributes:
        path: a segment of one hashed table.
        delta_rows: changed by each delta: a tenth inserted, a tenth deleted.
        deltas: how many.
        growths: how many times a new generation is made, evenly spread.
    """

    path: str
    delta_rows: int
    deltas: int
    growths: int


class Churned(msgspec.Struct, frozen=True):
    """What the writer says at the end.

    Attributes:
        used_bytes: memory of the newest generation, before each growth and at the end.
        live_keys: at the end.
        load: of the index at the end.
        mean_probe: groups a hit at the end.
        changed_rows: by all deltas.
        cpu_s: CPU time of all changes, reclaiming included.
        clock_s: from the first delta to the last.
        waits: deltas that had to wait for the reader or for room.
    """

    used_bytes: tuple[int, ...]
    live_keys: int
    load: float
    mean_probe: float
    changed_rows: int
    cpu_s: float
    clock_s: float
    waits: int


class Progress(msgspec.Struct, frozen=True):
    """From the writer: a generation, with its descriptor, before anything of it is published.

    Attributes:
        generation: its number.
        done: instead of a descriptor, when all is done.
    """

    generation: int
    done: Churned | None = None


@dataclass(slots=True)
class _Churning:
    """The writer at work."""

    channel: Channel
    words: SharedWords
    writer: StoreWriter
    churn: Churn
    rows: int
    dim: int
    rng: np.random.Generator
    capacity: Capacity
    retired: StoreWriter | None = None
    generation: int = 0
    published_first: int = 0
    low: int = 0
    waits: int = 0
    cpu_s: float = 0.0

    def run(self) -> Churned:
        """Apply all deltas, and grow on the way."""
        every = max(1, self.churn.deltas // (self.churn.growths + 1))
        used = []
        growth: Growth | None = None
        begin = time.perf_counter()
        for number in range(self.churn.deltas):
            self._apply(number)
            if number % every == every - 1 and growth is None:
                used.append(self._used_bytes())
                self.words.store(GROWING, 1)
                growth = self.writer.grow([self.capacity])
            if growth is not None and growth.step(_STEP_ROWS):
                self._switch(growth.finish())
                growth = None
        used.append(self._used_bytes())
        stats = self.writer.stats(0)
        return Churned(
            tuple(used), stats.live_keys, stats.load, stats.mean_probe,
            self.churn.deltas * self.churn.delta_rows, self.cpu_s, time.perf_counter() - begin,
            self.waits,
        )  # fmt: skip

    def _apply(self, number: int) -> None:
        new = int(self.churn.delta_rows * _NEW_SHARE)
        low, high = self.low, self.low + self.rows
        kept = self.rng.integers(low + new, high, self.churn.delta_rows - 2 * new)
        upserts = keys_of(0, np.concatenate([kept, np.arange(high, high + new)]))
        deletes = keys_of(0, np.arange(low, low + new))
        values = numbers_of(np.concatenate([kept, np.arange(high, high + new)]), self.dim)
        self.words.store(LOW, low + new)
        while True:
            begin = time.thread_time()
            try:
                self.writer.reclaim(self._floor())
                with self.writer.begin() as change:
                    change.upsert(0, upserts, values)
                    change.erase(0, deletes)
                    change.apply()
            except Unavailable:
                self.waits += 1
                time.sleep(_RETRY_S)
                continue
            finally:
                self.cpu_s += time.thread_time() - begin
            break
        self.low = low + new
        self._publish()

    def _switch(self, writer: StoreWriter) -> None:
        """Hand the new generation out, then publish it; the old one goes when nobody reads it."""
        self.retired, self.writer = self.writer, writer
        self.generation += 1
        self.published_first = writer.version
        self.channel.send(Progress(self.generation), writer.fd)
        self._publish()
        self.words.store(GROWING, 0)

    def _publish(self) -> None:
        word = self.generation << GENERATION_SHIFT | self.writer.version
        self.words.store(CURRENT, word)

    def _floor(self) -> int:
        """The oldest version of the newest generation that the reader may still read."""
        generation, version = divmod(self.words.load(LEASE), _VERSION_MASK + 1)
        if generation < self.generation:
            return self.published_first
        self.retired = None
        return version

    def _used_bytes(self) -> int:
        used = self.writer.memory()
        return used.index + used.arena + used.undo + used.books


def _churn(channel: Channel) -> None:
    churn, [words_fd] = channel.receive(Churn)
    words = SharedWords.open(words_fd, writable=True)
    segment = Segment.open(Path(churn.path), residency="populated")
    [table] = segment.tables
    # Room for every row to be rewritten, and for what waits for the reader.
    capacity = Capacity(
        arena_rows=table.rows + _SPARE_DELTAS * churn.delta_rows,
        keys=table.rows + _SPARE_DELTAS * int(churn.delta_rows * _NEW_SHARE),
    )
    writer = StoreWriter.create(segment, [capacity])
    for word in (CURRENT, LEASE):
        words.store(word, writer.version)
    channel.send(Progress(0), writer.fd)
    churning = _Churning(
        channel, words, writer, churn, table.rows, table.dim, np.random.default_rng(SEED), capacity
    )
    channel.send(Progress(churning.generation, churning.run()))
    channel.receive(Churn)  # hold the generation until the parent has compared


if __name__ == "__main__":
    play({"churn": _churn})
