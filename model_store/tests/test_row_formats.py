from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.row_formats import TableSize
from anabranch_runtime.store import Capacity as Room
from anabranch_runtime.store import (
    KeyKind,
    RowType,
    Segment,
    SegmentBuilder,
    StoreWriter,
    row_stride,
)
from anabranch_wire.plan import Capacity


@pytest.mark.parametrize(
    ("row_type", "dim", "stride"),
    [
        ("f32", 1, 4), ("f32", 3, 16), ("f32", 16, 64), ("f32", 17, 68), ("f32", 33, 132),
        ("f16", 1, 2), ("bf16", 33, 66), ("int8", 1, 8), ("int8", 32, 64), ("int8", 60, 64),
    ],
)  # fmt: skip
def test_a_row_ends_where_the_next_one_needs_no_further_line(
    row_type: RowType, dim: int, stride: int
) -> None:
    assert row_stride(row_type, dim) == stride


def test_rows_never_touch_more_lines_than_they_must() -> None:
    for row_type, size, header in (("f32", 4, 0), ("f16", 2, 0), ("int8", 1, 4)):
        for dim in range(1, 1025):
            used, stride = dim * size + header, row_stride(row_type, dim)  # type: ignore[arg-type]  # to be refused, or a stand-in
            assert used <= stride < used + 64
            least = -(-used // 64)
            for row in range(64):
                first, last = row * stride // 64, (row * stride + used - 1) // 64
                assert last - first + 1 <= least


def one_table(folder: Path, rows: int, row_type: RowType, keys: KeyKind) -> Segment:
    with SegmentBuilder(folder, "a.seg") as builder:
        table = builder.table("t", 9, row_type=row_type, keys=keys, rows=rows)
        ids = None if keys == "dense_id" else np.arange(rows)
        table.add(ids, np.zeros((rows, 9), np.float32))
        builder.finish()
    return Segment.open(folder / "a.seg")


@pytest.mark.parametrize("row_type", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("keys", ["hashed", "dense_id"])
def test_a_segment_has_the_bytes_that_were_foreseen(
    tmp_path: Path, row_type: RowType, keys: KeyKind
) -> None:
    rows = 300_000
    found = one_table(tmp_path, rows, row_type, keys).bytes
    foreseen = TableSize(rows, 9, row_type, keys).segment_bytes()
    assert foreseen <= found <= foreseen + 7 * 2**20  # three sections on 2 MiB each, and headers


@pytest.mark.parametrize("row_type", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("keys", ["hashed", "dense_id"])
def test_a_generation_has_the_bytes_that_were_foreseen(
    tmp_path: Path, row_type: RowType, keys: KeyKind
) -> None:
    rows = 300_000
    segment = one_table(tmp_path, rows, row_type, keys)
    room = Room(arena_rows=200_000, keys=400_000)
    found = StoreWriter.create(segment, [room]).generation.bytes
    foreseen = TableSize(rows, 9, row_type, keys).generation_bytes(
        Capacity(arena_rows=room.arena_rows, keys=room.keys)
    )
    assert foreseen <= found <= foreseen + 9 * 2**20  # four sections on 2 MiB each, and headers
