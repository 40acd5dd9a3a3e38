"""How much room tables get in memory, by what there is of it."""

from anabranch_runtime.store import Capacity, KeyKind, SegmentTable
from anabranch_server.supervisor.store_sizes import generation_bytes, with_room_for_all
from anabranch_wire.plan import MAX_ROWS


def table(rows: int, keys: KeyKind = "hashed") -> SegmentTable:
    return SegmentTable("t", 16, "f32", keys, rows, 0, 0, 0)


def test_every_row_of_a_table_may_change_where_memory_would_do_for_that() -> None:
    tables = [table(8_000_000), table(1_000, "dense_id")]
    rooms = [Capacity(2_000_000, 10_000_000), Capacity(1_024, 1_024)]
    wide = [Capacity(10_000_000, 10_000_000), Capacity(1_024, 1_024)]
    needed = generation_bytes(tables, wide)

    assert with_room_for_all(tables, rooms, None) == wide
    assert with_room_for_all(tables, rooms, 2 * needed) == wide
    assert with_room_for_all(tables, rooms, 2 * needed - 1) == rooms


def test_room_stays_within_what_a_table_may_have() -> None:
    tables = [table(MAX_ROWS - 10)]
    rooms = [Capacity(9, MAX_ROWS)]

    assert with_room_for_all(tables, rooms, None) == [Capacity(10, MAX_ROWS)]
