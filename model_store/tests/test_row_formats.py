from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.row_formats import TableSize, row_stride
from anabranch_runtime.store import KeyKind, RowType, Segment, SegmentBuilder
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
            used, stride = dim * size + header, row_stride(row_type, dim)  # type: ignore[arg-type]
            assert used <= stride < used + 64
            least = -(-used // 64)
            for row in range(64):
                first, last = row * stride // 64, (row * stride + used - 1) // 64
                assert last - first + 1 <= least


@pytest.mark.parametrize("row_type", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("keys", ["hashed", "dense_id"])
def test_a_segment_has_the_bytes_that_were_foreseen(
    tmp_path: Path, row_type: RowType, keys: KeyKind
) -> None:
    rows = 300_000
    with SegmentBuilder(tmp_path, "a.seg") as builder:
        table = builder.table("t", 9, row_type=row_type, keys=keys, rows=rows)
        ids = None if keys == "dense_id" else np.arange(rows)
        table.add(ids, np.zeros((rows, 9), np.float32))
        builder.finish()
    found = Segment.open(tmp_path / "a.seg").bytes
    foreseen = TableSize(rows, 9, row_type, keys).segment_bytes()
    assert foreseen <= found <= foreseen + 7 * 2**20  # three sections on 2 MiB each, and headers


def test_room_counts_rows_links_and_an_index_for_all_keys() -> None:
    room = Capacity(arena_rows=1000, keys=6000)
    assert TableSize(5000, 16, "f32", "hashed").generation_bytes(room) == (
        1000 * (64 + 8) + (6000 * 5 // 12 + 2) * 64
    )
    assert TableSize(5000, 16, "f32", "dense_id").generation_bytes(room) == (
        1000 * (64 + 8) + 5000 * 8 + 625
    )
