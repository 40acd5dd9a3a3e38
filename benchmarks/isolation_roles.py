"""The processes of S10: a writer that rewrites everything, and readers that check every batch.

What a batch must give is known from its version alone. At version v every row of both tables holds
the number v in all its columns, and the keys that come and go are there exactly where v is odd; so
a batch that mixes two versions, tables included, or holds half a row, is seen at once.

Words in shared memory: the published one, `generation << 32 | version`; the version that was
committed last, which a writer sets before it touches a row and its successor replays; and for each
reader its lease, its batches and its torn batches.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import (
    Capacity,
    FeatureArrays,
    FeatureLookup,
    Generation,
    Growth,
    LookupArguments,
    LookupBuffer,
    LookupPlan,
    Segment,
    SegmentBuilder,
    StoreWriter,
)
from anabranch_wire.errors import Unavailable
from lookup_material import SEED, keys_of
from store_children import Channel

__all__ = [
    "BATCHES",
    "COMMITTED",
    "CURRENT",
    "GENERATION_SHIFT",
    "LEASE",
    "NO_LEASE",
    "READERS",
    "TORN",
    "WORDS",
    "Generations",
    "Go",
    "Tables",
    "is_torn",
    "read",
    "write",
]

READERS: Final = 3
CURRENT: Final = 0
COMMITTED: Final = 1
LEASE: Final = 2
BATCHES: Final = LEASE + READERS
TORN: Final = BATCHES + READERS
WORDS: Final = TORN + READERS
GENERATION_SHIFT: Final = 32
NO_LEASE: Final = (1 << 64) - 1

_DIMS: Final = (16, 8)
_BOUND: Final = 32
_STEP_SHARE: Final = 8
_RETRY_S: Final = 0.0002


class Generations(msgspec.Struct, frozen=True):
    """Generations by number, with their descriptors: what was made, or is to be mapped.

    Readers answer with the same numbers once they have mapped them.
    """

    numbers: tuple[int, ...]


class Go(msgspec.Struct, frozen=True):
    """To the writer: every reader has mapped the generation, publish it."""

    number: int


@dataclass(frozen=True, slots=True)
class Tables:
    """What is read and rewritten.

    Attributes:
        path: the segment.
        rows: of each table; the first one has hashed keys, the second one dense ids.
        passing: keys of the first table that are there in odd versions only.
        batch_rows: ids of each feature in a batch.
        growth_every: rewrites from one new generation to the next.
    """

    path: Path
    rows: int
    passing: int
    batch_rows: int
    growth_every: int

    def build(self) -> None:
        """Write the segment: version 1, an odd one."""
        with SegmentBuilder(self.path.parent, self.path.name) as builder:
            table = builder.table("hashed", _DIMS[0], rows=self.rows + self.passing)
            table.add(np.concatenate([self.keys(), self.passing_keys()]), self.values(0, 1))
            table = builder.table("dense", _DIMS[1], keys="dense_id", rows=self.rows)
            table.add(None, self.values(1, 1)[: self.rows])
            builder.finish()

    def keys(self) -> NDArray[np.uint64]:
        """Keys (rows,) of the first table that are always there."""
        return keys_of(0, np.arange(self.rows))

    def passing_keys(self) -> NDArray[np.uint64]:
        """Keys (passing,) of the first table that come and go."""
        return keys_of(1, np.arange(self.passing))

    def values(self, table: int, version: int) -> NDArray[np.float32]:
        """Return the rows (rows + passing, dim) of a version."""
        return np.full((self.rows + self.passing, _DIMS[table]), version, np.float32)

    def capacities(self) -> list[Capacity]:
        """Room for a rewritten table beside two that wait for readers."""
        return [
            Capacity(arena_rows=3 * (self.rows + self.passing), keys=2 * self.rows + self.passing),
            Capacity(arena_rows=3 * self.rows, keys=self.rows),
        ]


def is_torn(out: NDArray[np.float32], version: int) -> bool:
    """Whether `out` (rows, columns of both tables and of the passing keys) is not of `version`."""
    always = _DIMS[0] + _DIMS[1]
    passing = version if version % 2 else 0
    return not ((out[:, :always] == version).all() and (out[:, always:] == passing).all())


def read(channel: Channel, words: SharedWords, tables: Tables, index: int) -> None:
    """Be reader number `index`: check batch after batch until killed."""
    segment = Segment.open(tables.path, residency="populated")
    mapped: dict[int, _Bound] = {}
    _map(channel, segment, tables, mapped)
    last = 0
    count = 0
    while True:
        while channel.is_readable():
            _map(channel, segment, tables, mapped)
        word = words.load(CURRENT)
        generation, version = divmod(word, 1 << GENERATION_SHIFT)
        out = mapped[generation].look_up(count, version)
        if is_torn(out, version) or word < last:
            words.add(TORN + index, 1)
        if word != last:
            words.store(LEASE + index, word)
            for old in [number for number in mapped if number < generation]:
                del mapped[old]
        words.add(BATCHES + index, 1)
        last = word
        count += 1


@dataclass(frozen=True, slots=True)
class _Bound:
    """A mapped generation and bound batches over it."""

    plan: LookupPlan
    arguments: tuple[LookupArguments, ...]
    out: NDArray[np.float32]

    @classmethod
    def over(cls, generation: Generation, tables: Tables) -> "_Bound":
        lookups = [
            FeatureLookup(feature="hashed", table=0, column=0),
            FeatureLookup(feature="dense", table=1, column=_DIMS[0]),
            FeatureLookup(feature="passing", table=0, column=sum(_DIMS)),
        ]
        columns = sum(_DIMS) + _DIMS[0]
        plan = LookupPlan(generation, lookups, [LookupBuffer(columns=columns)])
        rng = np.random.default_rng(SEED + os.getpid())
        out = np.zeros((tables.batch_rows, columns), np.float32)
        arguments = []
        for _ in range(_BOUND):
            numbers = rng.integers(0, tables.rows, (2, tables.batch_rows))
            passing = rng.choice(tables.passing_keys(), tables.batch_rows)
            ids = (keys_of(0, numbers[0]).view(np.int64), numbers[1], passing.view(np.int64))
            arguments.append(plan.arguments([FeatureArrays(one) for one in ids], [out]))
        return cls(plan, tuple(arguments), out)

    def look_up(self, count: int, version: int) -> NDArray[np.float32]:
        """Look up one of the batches."""
        self.plan.run(self.arguments[count % _BOUND], version, len(self.out))
        return self.out


def _map(channel: Channel, segment: Segment, tables: Tables, mapped: dict[int, _Bound]) -> None:
    """Map the generations of one message, and say so."""
    message, fds = channel.receive(Generations)
    for number, fd in zip(message.numbers, fds, strict=True):
        mapped[number] = _Bound.over(Generation.map(fd, segment), tables)
        os.close(fd)
    channel.send(message)


def write(channel: Channel, words: SharedWords, tables: Tables, number: int) -> None:
    """Be the writer, with a fresh generation `number`: rewrite everything until killed."""
    writing = _Writing.fresh(channel, words, tables, number)
    while True:
        growth = None
        for _ in range(tables.growth_every):
            writing.rewrite()
        growth = writing.writer.grow(tables.capacities())
        while not growth.step(tables.rows // _STEP_SHARE):
            writing.rewrite()
        writing.switch(growth)


@dataclass(slots=True)
class _Writing:
    """The writer at work."""

    channel: Channel
    words: SharedWords
    tables: Tables
    number: int
    writer: StoreWriter
    first: int = 0
    """The version at which the generation was published."""

    @classmethod
    def fresh(cls, channel: Channel, words: SharedWords, tables: Tables, number: int) -> "_Writing":
        """Build a generation from the base and what was committed, and publish it."""
        committed = words.load(COMMITTED)
        segment = Segment.open(tables.path, residency="populated")
        base = max(1, committed - 1)
        writer = StoreWriter.create(segment, tables.capacities(), version=base)
        writing = cls(channel, words, tables, number, writer)
        if committed > 1:
            writing._change(lambda: None)
        words.store(COMMITTED, writer.version)
        writing._hand_out()
        return writing

    def rewrite(self) -> None:
        """Make every row that of the next version."""
        while True:
            try:
                self.writer.reclaim(self._floor())
                self._change(lambda: self.words.store(COMMITTED, self.writer.version + 1))
                break
            except Unavailable:  # a reader is behind
                time.sleep(_RETRY_S)
        self._publish()

    def switch(self, growth: Growth) -> None:
        """Go on in a new generation."""
        self.writer = growth.finish()
        self.number += 1
        self._hand_out()

    def _change(self, commit: Callable[[], None]) -> None:
        tables = self.tables
        with self.writer.begin() as change:
            first = tables.values(0, change.version)
            if change.version % 2:
                change.upsert(0, np.concatenate([tables.keys(), tables.passing_keys()]), first)
            else:
                change.upsert(0, tables.keys(), first[: tables.rows])
                change.erase(0, tables.passing_keys())
            dense = tables.values(1, change.version)[: tables.rows]
            change.upsert(1, np.arange(tables.rows), dense)
            commit()
            change.apply()

    def _hand_out(self) -> None:
        """Publish the generation once every reader has mapped it."""
        self.channel.send(Generations((self.number,)), self.writer.fd)
        self.channel.receive(Go)
        self.first = self.writer.version
        self._publish()

    def _publish(self) -> None:
        word = self.number << GENERATION_SHIFT | self.writer.version
        self.words.store(CURRENT, word)

    def _floor(self) -> int:
        """The oldest version of this generation that anybody may still read."""
        oldest = min(self.words.load(LEASE + index) for index in range(READERS))
        if oldest == NO_LEASE:
            return self.writer.version
        generation, version = divmod(oldest, 1 << GENERATION_SHIFT)
        return self.first if generation < self.number else version
