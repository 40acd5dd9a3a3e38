import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Capacity,
    Change,
    ChangeCounts,
    Generation,
    Growth,
    Segment,
    SegmentBuilder,
    StoreWriter,
)
from anabranch_wire.errors import InvalidInput, Unavailable

DIM = 4


def keys(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


def rows(count: int, number: float) -> NDArray[np.float32]:
    return np.full((count, DIM), number, np.float32)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """A hashed table with keys 0..9 and a table of ten dense ids; row k holds k."""
    numbers = np.arange(10)
    values = np.repeat(numbers[:, None], DIM, axis=1).astype(np.float32)
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("hashed", DIM, rows=10).add(numbers.astype(np.uint64), values)
        builder.table("dense", DIM, keys="dense_id", rows=10).add(None, values)
        builder.finish()
    return Segment.open(tmp_path / "base.seg")


MakeWriter = Callable[[int], StoreWriter]


@pytest.fixture
def writer(segment: Segment) -> StoreWriter:
    return StoreWriter.create(segment, [Capacity(arena_rows=8, keys=14)] * 2)


def numbers_at(writer: StoreWriter, version: int, table: int, *wanted: int) -> list[float | None]:
    """The number that each key's row is full of; None where there is no row."""
    seen, found = writer.generation.rows(table, keys(*wanted), version)
    assert (seen == seen[:, :1]).all()
    return [float(row[0]) if there else None for row, there in zip(seen, found, strict=True)]


def test_a_change_is_seen_at_its_version_and_not_before(writer: StoreWriter) -> None:
    with writer.begin() as change:
        change.upsert(0, keys(3, 77), rows(2, 50))
        change.erase(0, keys(4, 99))
        change.upsert(1, keys(5), rows(1, 60))
        assert change.version == 2
        assert numbers_at(writer, 2, 0, 3, 4, 77) == [3, 4, None]
        change.apply()

    assert writer.version == 2
    assert numbers_at(writer, 1, 0, 3, 4, 77) == [3, 4, None]
    assert numbers_at(writer, 2, 0, 3, 4, 77) == [50, None, 50]
    assert numbers_at(writer, 1, 1, 5, 6) == [5, 6]
    assert numbers_at(writer, 2, 1, 5, 6) == [60, 6]
    assert change.counts == ChangeCounts(inserted=1, updated=2, deleted=1, absent=1, duplicates=0)


def test_the_last_row_of_a_key_wins(writer: StoreWriter) -> None:
    with writer.begin() as change:
        change.upsert(0, keys(3, 3), np.concatenate([rows(1, 1), rows(1, 2)]))
        change.erase(0, keys(6))
        change.upsert(0, keys(6), rows(1, 9))
        change.upsert(0, keys(7), rows(1, 9))
        change.erase(0, keys(7))
        change.apply()

    assert numbers_at(writer, 2, 0, 3, 6, 7) == [2, 9, None]
    assert change.counts == ChangeCounts(inserted=0, updated=2, deleted=1, absent=0, duplicates=3)


def test_leaving_a_change_gives_everything_back(writer: StoreWriter) -> None:
    before = writer.stats(0)
    for _ in range(100):
        with writer.begin() as change:
            change.upsert(0, keys(1, 2, 100, 101), rows(4, 5))
            change.erase(0, keys(3))

    change = writer.begin()
    change.close()
    change.close()
    assert writer.version == 1
    assert writer.stats(0) == before
    with pytest.raises(RuntimeError, match="closed"):
        change.upsert(0, keys(1), rows(1, 1))
    with pytest.raises(RuntimeError, match="closed"):
        change.apply()


def test_there_is_one_change_at_a_time(writer: StoreWriter) -> None:
    with writer.begin(), pytest.raises(RuntimeError):
        writer.begin()
    writer.begin().close()


def test_a_full_arena_refuses_the_whole_change_with_the_numbers(writer: StoreWriter) -> None:
    with writer.begin() as change:
        change.upsert(0, keys(*range(8)), rows(8, 5))
        with pytest.raises(Unavailable, match="8"):
            change.upsert(0, keys(8), rows(1, 5))
        with pytest.raises(RuntimeError, match="closed"):
            change.apply()

    assert numbers_at(writer, 2, 0, *range(10)) == list(range(10))
    with writer.begin() as change:
        change.upsert(0, keys(*range(8)), rows(8, 6))
        change.apply()
    assert numbers_at(writer, 2, 0, 0, 7, 8) == [6, 6, 8]


def test_more_keys_than_there_is_room_for_are_refused(segment: Segment) -> None:
    writer = StoreWriter.create(segment, [Capacity(arena_rows=100, keys=14)] * 2)

    with writer.begin() as refused, pytest.raises(Unavailable, match="14"):
        refused.upsert(0, keys(*range(100, 200)), rows(100, 5))
    with writer.begin() as change:
        change.upsert(0, keys(*range(100, 104)), rows(4, 5))


def test_superseded_rows_are_kept_until_nobody_can_see_them(writer: StoreWriter) -> None:
    for number in (20, 21):
        with writer.begin() as change:
            change.upsert(0, keys(1, 2, 3), rows(3, number))
            change.apply()
    assert writer.stats(0).retired_rows == 3

    assert writer.reclaim(2) == 0
    assert numbers_at(writer, 2, 0, 1) == [20]
    assert writer.reclaim(3) == 3

    assert writer.stats(0).retired_rows == 0
    assert writer.stats(0).arena_used == 3
    with pytest.raises(InvalidInput):
        writer.reclaim(4)


def test_rows_and_slots_are_used_again_for_ever(writer: StoreWriter) -> None:
    for key in range(1000, 1400):
        with writer.begin() as change:
            change.upsert(0, keys(key), rows(1, key))
            change.apply()
        with writer.begin() as change:
            change.erase(0, keys(key))
            change.apply()
        writer.reclaim(writer.version)

    assert writer.stats(0).live_keys == 10
    assert numbers_at(writer, writer.version, 0, 0, 9, 1399) == [0, 9, None]


def test_restoring_brings_every_row_back_as_a_new_version(writer: StoreWriter) -> None:
    with writer.begin() as change:
        change.upsert(0, keys(1, 50), rows(2, 7))
        change.erase(0, keys(2))
        change.upsert(1, keys(1), rows(1, 7))
        change.apply()

    with writer.restore(1) as change:
        change.apply()

    assert writer.version == 3
    assert numbers_at(writer, 2, 0, 1, 2, 50) == [7, None, 7]
    assert numbers_at(writer, 3, 0, 1, 2, 50) == [1, 2, None]
    assert numbers_at(writer, 3, 1, 1, 2) == [1, 2]
    writer.reclaim(3)
    with pytest.raises(InvalidInput):
        writer.restore(1)


def test_growth_goes_on_beside_changes(segment: Segment, writer: StoreWriter) -> None:
    with writer.begin() as change:
        change.upsert(0, keys(1, 60), rows(2, 11))
        change.apply()
    old = writer.generation
    growth = writer.grow([Capacity(arena_rows=100, keys=100)] * 2)
    growth.step(3)
    with writer.begin() as change:
        change.upsert(0, keys(0, 61), rows(2, 12))
        change.erase(0, keys(1))
        change.upsert(1, keys(9), rows(1, 13))
        change.apply()
    while not growth.step(3):
        pass

    new = growth.finish()

    assert new.version == writer.version == 3
    assert numbers_at(new, 3, 0, 0, 1, 2, 60, 61) == [12, None, 2, 11, 12]
    assert numbers_at(new, 3, 1, 8, 9) == [8, 13]
    del writer, growth
    assert old.rows(0, keys(1), 2)[0][0, 0] == 11  # whoever reads the old one may go on
    with new.begin() as change:
        change.upsert(0, keys(*range(200, 280)), rows(80, 1))
        change.apply()
    assert new.stats(0).live_keys == 91


def test_a_growth_that_is_given_up_changes_nothing(writer: StoreWriter) -> None:
    growth = writer.grow([Capacity(arena_rows=100, keys=100)] * 2)
    growth.step(1)
    growth.close()

    with pytest.raises(RuntimeError, match="closed"):
        growth.step(1)
    with writer.begin() as change:
        change.upsert(0, keys(1), rows(1, 5))
        change.apply()
    assert numbers_at(writer, 2, 0, 1) == [5]
    writer.grow([Capacity(arena_rows=9, keys=20)] * 2).close()


def test_a_growth_into_too_little_room_is_closed_and_the_old_store_goes_on(
    writer: StoreWriter,
) -> None:
    with writer.begin() as change:
        change.upsert(0, keys(*range(8)), rows(8, 5))
        change.apply()
    growth = writer.grow([Capacity(arena_rows=2, keys=14)] * 2)

    with pytest.raises(Unavailable):
        finish(growth)

    with pytest.raises(RuntimeError, match="closed"):
        growth.finish()
    assert numbers_at(writer, 2, 0, 0, 7, 9) == [5, 5, 9]
    assert finish(writer.grow([Capacity(arena_rows=9, keys=14)] * 2)).version == 2


def finish(growth: Growth) -> StoreWriter:
    while not growth.step(3):
        pass
    return growth.finish()


def test_what_a_table_cannot_take_is_refused(writer: StoreWriter) -> None:
    def refuse(match: str, act: Callable[..., None], *arguments: object) -> None:
        with writer.begin() as change, pytest.raises(InvalidInput, match=match):
            act(change, *arguments)

    upsert, erase = Change.upsert, Change.erase
    refuse("no table 2: the store has 2", upsert, 2, keys(1), rows(1, 1))
    refuse("no table 2: the store has 2", erase, 2, keys(1))
    refuse("expected 4 on axis 1, got 5", upsert, 0, keys(1), np.zeros((1, 5), np.float32))
    refuse("keys: expected int64 or uint64", upsert, 0, np.ones(1, np.float32), rows(1, 1))
    refuse("10", upsert, 1, keys(10), rows(1, 1))  # a dense id that is out of range
    refuse("dense", erase, 1, keys(1))


def test_a_store_tells_what_it_holds(segment: Segment, writer: StoreWriter) -> None:
    stats = writer.stats(0)

    assert (stats.live_keys, stats.arena_rows, stats.arena_used) == (10, 8, 0)
    assert stats.used_slots == 9  # key 0 lies apart
    assert stats.load == pytest.approx(10 / stats.slots)
    assert stats.mean_probe >= 1
    assert writer.stats(1).load == writer.stats(1).mean_probe == 1
    assert writer.memory().index > 0
    assert 0 <= writer.huge_page_ratio() <= 1
    assert writer.generation.tables == segment.tables
    with pytest.raises(InvalidInput, match="no table 2"):
        writer.stats(2)


def test_readers_can_write_in_no_way(segment: Segment, writer: StoreWriter) -> None:
    with pytest.raises(PermissionError):
        os.pwrite(writer.fd, b"x", 0)
    fd = os.dup(writer.fd)
    generation = Generation.map(fd, segment)
    os.close(fd)

    assert generation.rows(0, keys(3), 1)[0][0, 0] == 3


def test_capacities_are_one_for_each_table_and_hold_the_base(segment: Segment) -> None:
    for capacities in ([], [Capacity(1, 14)], [Capacity(1, 9), Capacity(1, 14)]):
        with pytest.raises(InvalidInput):
            StoreWriter.create(segment, capacities)
    with pytest.raises(InvalidInput):
        StoreWriter.create(segment, [Capacity(1, 14)] * 2, version=0)
