"""Whatever is done to a store, every retained version reads as a plain dict says.

Rows of f32 are compared exactly; those of f16 and bf16 with what the model rounds them to; int8
rows are of numbers that the row type holds exactly. `ANABRANCH_FUZZ_CASES` sets how many stories
are tried, a hundredth of it.
"""

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Capacity,
    Change,
    FeatureArrays,
    FeatureLookup,
    Generation,
    Growth,
    KeyKind,
    LookupBuffer,
    LookupPlan,
    RowType,
    Segment,
    SegmentBuilder,
    StoreWriter,
    instruction_sets,
)
from anabranch_testing.mutations import fuzz_cases
from anabranch_wire.errors import InvalidInput, Unavailable

DIMS: Final = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 127, 128, 129)
POOL: Final = np.array(
    [0, 2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, *range(1, 17), *(3**k for k in range(20, 40))],
    np.uint64,
)
"""Every key that is ever used; the first two are those that the index keeps apart."""

Rows = dict[int, NDArray[np.float32]]


@dataclass(frozen=True)
class Shape:
    """A table and the room it gets."""

    dim: int
    row_type: RowType
    keys: KeyKind
    rows: int
    arena_rows: int
    more_keys: int

    @property
    def capacity(self) -> Capacity:
        return Capacity(arena_rows=self.arena_rows, keys=self.rows + self.more_keys)

    def base_keys(self) -> list[int]:
        if self.keys == "dense_id":
            return list(range(self.rows))
        return [int(key) for key in POOL[:: 2 if self.rows < 20 else 1][: self.rows]]

    def values(self, count: int, stamp: int) -> NDArray[np.float32]:
        """Numbers (count, dim) that differ for each stamp."""
        rng = np.random.default_rng([stamp, self.dim])
        if self.row_type != "int8":
            return rng.standard_normal((count, self.dim), np.float32)
        if self.dim == 1:
            return (rng.integers(-999, 999, (count, 1)) / 4).astype(np.float32)
        numbers = rng.integers(-128, 128, (count, self.dim))
        numbers[:, :2] = -128, 127  # so that scale and bias come out as they are here
        return (numbers / 64 + rng.integers(-9, 9, (count, 1)) / 4).astype(np.float32)

    def rounded(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """What a table of this type holds of them."""
        if self.row_type == "f16":
            return values.astype(np.float16).astype(np.float32)
        if self.row_type == "bf16":
            bits = values.view(np.uint32)
            return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
        return values


SHAPES: Final = st.builds(
    Shape,
    dim=st.sampled_from(DIMS),
    row_type=st.sampled_from(("f32", "f16", "bf16", "int8")),
    keys=st.sampled_from(("hashed", "hashed", "dense_id")),
    rows=st.integers(1, 20),
    arena_rows=st.integers(1, 40),
    more_keys=st.integers(0, 25),
)


@dataclass(frozen=True)
class Snapshot:
    """What one version holds: the rows of each table."""

    shapes: tuple[Shape, ...]
    tables: tuple[Rows, ...]

    @cached_property
    def expected(self) -> list[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Rows of the whole pool, and which there are, for each table."""
        return [
            (
                np.stack([rows.get(int(key), np.zeros(shape.dim, np.float32)) for key in POOL]),
                np.array([int(key) in rows for key in POOL]),
            )
            for shape, rows in zip(self.shapes, self.tables, strict=True)
        ]


class Reader:
    """A generation, and a plan that looks the whole pool up in each of its tables."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        tables = generation.tables
        self.outputs: list[NDArray[Any]] = [
            np.empty((len(POOL), table.dim), np.float32) for table in tables
        ]
        self.plan = LookupPlan(
            generation,
            [
                FeatureLookup(feature=f"f{i}", table=i, combiner="none", buffer=i)
                for i in range(len(tables))
            ],
            [LookupBuffer(columns=table.dim) for table in tables],
            isa=instruction_sets()[len(tables) % len(instruction_sets())],
        )
        self.arguments = self.plan.arguments([FeatureArrays(POOL)] * len(tables), self.outputs)

    def check(self, version: int, snapshot: Snapshot) -> None:
        for output in self.outputs:
            output.fill(np.nan)
        misses = self.arguments.misses.copy()
        self.plan.run(self.arguments, version, len(POOL))
        for table, (values, found) in enumerate(snapshot.expected):
            seen, there = self.generation.rows(table, POOL, version)
            np.testing.assert_array_equal(there, found)
            np.testing.assert_array_equal(seen, values)
            np.testing.assert_array_equal(self.outputs[table], values)
            assert self.arguments.misses[table] - misses[table] == np.sum(~found)


@dataclass(frozen=True)
class Lease:
    """What some reader may still read."""

    reader: Reader
    growths: int
    version: int
    snapshot: Snapshot


class StoreMachine(RuleBasedStateMachine):
    """A store, its model, and readers that hold on to versions."""

    def __init__(self) -> None:
        super().__init__()
        self.change: Change | None = None
        self.growth: Growth | None = None
        self.leases: list[Lease] = []
        self.growths = 0

    @initialize(shapes=st.lists(SHAPES, min_size=1, max_size=3), version=st.sampled_from((1, 7)))
    def create(self, shapes: list[Shape], version: int) -> None:
        self.shapes = tuple(shapes)
        tables: list[Rows] = []
        with tempfile.TemporaryDirectory() as folder:
            with SegmentBuilder(Path(folder), "base.seg") as builder:
                for number, shape in enumerate(shapes):
                    table = builder.table(
                        f"t{number}",
                        shape.dim,
                        row_type=shape.row_type,
                        keys=shape.keys,
                        rows=shape.rows,
                    )
                    keys = shape.base_keys()
                    values = shape.values(len(keys), number)
                    is_hashed = shape.keys == "hashed"
                    table.add(np.array(keys, np.uint64) if is_hashed else None, values)
                    tables.append(dict(zip(keys, shape.rounded(values), strict=True)))
                builder.finish()
            self.segment = Segment.open(Path(folder) / "base.seg")
        self.writer = StoreWriter.create(
            self.segment, [shape.capacity for shape in shapes], version=version
        )
        self.reader = Reader(self.writer.generation)
        self.retained = {version: Snapshot(self.shapes, tuple(tables))}
        self.ever = [set(rows) for rows in tables]
        self.touched: dict[int, list[set[int]]] = {}

    @property
    def current(self) -> Snapshot:
        return self.retained[self.writer.version]

    def open_change(self) -> Change:
        if self.change is None:
            self.change = self.writer.begin()
            assert self.change.version == self.writer.version + 1
            self.pending: list[dict[int, NDArray[np.float32] | None]] = [{} for _ in self.shapes]
            self.duplicates = self.absent = 0
        return self.change

    def keys_for(self, table: int, picks: list[int]) -> tuple[int, NDArray[np.uint64]]:
        """A table that there is, and keys that it may have."""
        table %= len(self.shapes)
        shape = self.shapes[table]
        if shape.keys == "dense_id":
            return table, np.array([pick % shape.rows for pick in picks], np.uint64)
        return table, POOL[picks]

    def is_room(self, table: int, keys: NDArray[np.uint64], free: int) -> bool:
        """Whether nothing may refuse these keys: rows are free, and the index has their slots."""
        shape = self.shapes[table]
        wanted = {int(key) for key in keys}
        ever = self.ever[table] | self.pending[table].keys() | wanted
        return len(wanted) <= free and (
            shape.keys == "dense_id" or len(ever) <= shape.rows + shape.more_keys
        )

    def alter(
        self, table: int, keys: NDArray[np.uint64], values: NDArray[np.float32] | None
    ) -> None:
        change = self.open_change()
        stats = self.writer.stats(table)
        roomy = self.is_room(table, keys, stats.arena_rows - stats.arena_used)
        try:
            if values is None:
                change.erase(table, keys)
            else:
                change.upsert(table, keys, values)
        except Unavailable:
            assert not roomy
            self.change = None
            return
        rows = [None] * len(keys) if values is None else self.shapes[table].rounded(values)
        for key, row in zip((int(key) for key in keys), rows, strict=True):
            self.duplicates += key in self.pending[table]
            if row is None and key not in self.current.tables[table] | self.pending[table]:
                self.absent += 1
            else:
                self.pending[table][key] = row

    @rule(
        table=st.integers(0, 2),
        picks=st.lists(st.integers(0, len(POOL) - 1), max_size=16),
        stamp=st.integers(0, 2**16),
    )
    def upsert(self, table: int, picks: list[int], stamp: int) -> None:
        table, keys = self.keys_for(table, picks)
        self.alter(table, keys, self.shapes[table].values(len(keys), stamp))

    @rule(table=st.integers(0, 2), picks=st.lists(st.integers(0, len(POOL) - 1), max_size=8))
    def erase(self, table: int, picks: list[int]) -> None:
        table, keys = self.keys_for(table, picks)
        if self.shapes[table].keys == "hashed":
            self.alter(table, keys, None)
            return
        with pytest.raises(InvalidInput):
            self.open_change().erase(table, keys)
        self.change = None

    @precondition(lambda self: self.change is not None)
    @rule()
    def apply(self) -> None:
        assert self.change is not None
        tables = []
        counts = [0, 0, 0, self.absent]
        for number, pending in enumerate(self.pending):
            rows = dict(self.current.tables[number])
            for key, row in pending.items():
                is_there = key in rows
                counts[2 * (row is None) + (is_there if row is not None else not is_there)] += 1
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
            tables.append(rows)
            self.ever[number] |= rows.keys()
        seen = self.change.counts
        assert [seen.inserted, seen.updated, seen.deleted, seen.absent] == counts
        assert seen.duplicates == self.duplicates

        self.change.apply()

        assert self.change.counts == seen
        assert self.writer.version == self.change.version
        self.retained[self.writer.version] = Snapshot(self.shapes, tuple(tables))
        self.touched[self.writer.version] = [set(pending) for pending in self.pending]
        self.change = None

    @precondition(lambda self: self.change is not None)
    @rule()
    def abandon(self) -> None:
        assert self.change is not None
        self.change.close()
        self.change = None

    @precondition(lambda self: self.change is None)
    @rule(pick=st.integers(0, 100), is_applied=st.booleans())
    def restore(self, pick: int, is_applied: bool) -> None:
        versions = sorted(self.retained)
        wanted = versions[pick % len(versions)]
        # Each key that was touched since takes a row, also where it has its old one back already.
        touched = [set[int]().union(*later) for later in zip(*self.later(wanted), strict=True)]
        stats = [self.writer.stats(number) for number in range(len(self.shapes))]
        try:
            change = self.writer.restore(wanted)
        except Unavailable:
            assert any(
                len(keys) > table.arena_rows - table.arena_used
                for keys, table in zip(touched, stats, strict=True)
            )
            return
        if is_applied:
            change.apply()
            self.retained[change.version] = self.retained[wanted]
            self.touched[change.version] = touched
        else:
            change.close()

    def later(self, version: int) -> list[list[set[int]]]:
        """The keys that each version after this one touched, for each table."""
        nothing: list[set[int]] = [set() for _ in self.shapes]
        return [nothing, *(keys for each, keys in self.touched.items() if each > version)]

    @precondition(lambda self: self.change is None)
    @rule(past=st.integers(1, 3))
    def refuse_to_restore_what_is_gone(self, past: int) -> None:
        gone = min(self.retained) - past
        if gone > 0:
            with pytest.raises(InvalidInput):
                self.writer.restore(gone)

    @rule(pick=st.integers(0, 100), is_mapped=st.booleans())
    def lease(self, pick: int, is_mapped: bool) -> None:
        versions = sorted(self.retained)
        version = versions[pick % len(versions)]
        reader = self.reader
        if is_mapped:
            reader = Reader(Generation.map(self.writer.fd, self.segment))
        if len(self.leases) < 6:
            self.leases.append(Lease(reader, self.growths, version, self.retained[version]))

    @precondition(lambda self: self.leases)
    @rule(pick=st.integers(0, 100))
    def release(self, pick: int) -> None:
        del self.leases[pick % len(self.leases)]

    @precondition(lambda self: self.change is None)
    @rule()
    def reclaim(self) -> None:
        # Leases of generations before this one hold nothing back here.
        held = [lease.version for lease in self.leases if lease.growths == self.growths]
        floor = min([*held, self.writer.version])
        self.writer.reclaim(floor)
        self.retained = {
            version: snapshot for version, snapshot in self.retained.items() if version >= floor
        }
        if floor == self.writer.version:
            for number in range(len(self.shapes)):
                assert self.writer.stats(number).retired_rows == 0

    @precondition(lambda self: self.growth is None)
    @rule(arena_rows=st.integers(10, 60), more_keys=st.integers(25, 50))
    def begin_growth(self, arena_rows: int, more_keys: int) -> None:
        self.grown = tuple(
            Shape(s.dim, s.row_type, s.keys, s.rows, arena_rows, more_keys) for s in self.shapes
        )
        self.growth = self.writer.grow([shape.capacity for shape in self.grown])
        self.begun_at = self.writer.version

    @precondition(lambda self: self.growth is not None)
    @rule(rows=st.integers(1, 20))
    def step_growth(self, rows: int) -> None:
        assert self.growth is not None
        try:
            self.growth.step(rows)
        except Unavailable:
            self.give_growth_up()

    def give_growth_up(self) -> None:
        """Every key that was ever touched may need a row, and more where it changed meanwhile."""
        touched = max(map(len, self.ever)) * (1 + self.writer.version - self.begun_at)
        assert touched > min(shape.arena_rows for shape in self.grown)
        self.growth = None

    @precondition(lambda self: self.growth is not None and self.change is None)
    @rule(is_kept=st.sampled_from((True, True, True, False)))
    def end_growth(self, is_kept: bool) -> None:
        assert self.growth is not None
        if not is_kept:
            self.growth.close()
            self.growth = None
            return
        try:
            while not self.growth.step(7):
                pass
            writer = self.growth.finish()
        except Unavailable:
            self.give_growth_up()
            return
        self.growth = None
        current = self.current
        assert writer.version == self.writer.version
        self.growths += 1
        self.writer, self.shapes = writer, self.grown
        self.reader = Reader(writer.generation)
        self.retained = {writer.version: Snapshot(self.shapes, current.tables)}
        self.ever = [set(rows) for rows in current.tables]
        self.touched = {}

    @invariant()
    def every_version_that_is_held_reads_as_written(self) -> None:
        for version, snapshot in self.retained.items():
            self.reader.check(version, snapshot)
        for lease in self.leases:
            lease.reader.check(lease.version, lease.snapshot)

    @invariant()
    def every_row_is_accounted_for(self) -> None:
        for number, rows in enumerate(self.current.tables):
            stats = self.writer.stats(number)
            assert stats.live_keys == len(rows)
            assert stats.retired_rows <= stats.arena_used <= stats.arena_rows

    def teardown(self) -> None:
        if self.change is not None:
            self.change.close()
        if self.growth is not None:
            self.growth.close()


@pytest.mark.soak
def test_every_version_reads_as_the_model_says() -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=max(1, fuzz_cases() // 100),
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
        ),
    )
