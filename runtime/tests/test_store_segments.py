import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Base,
    Capacity,
    Generation,
    Residency,
    RowType,
    Segment,
    SegmentBuilder,
    StoreWriter,
    segments,
)
from anabranch_runtime.store.file_systems import is_steady
from anabranch_wire.errors import Corrupt, InvalidInput, Unsupported

KEYS = np.array([0, 2**64 - 1, 5, 2**63], np.uint64)


def values(count: int, dim: int) -> NDArray[np.float32]:
    return np.random.default_rng(dim).standard_normal((count, dim), np.float32)


def read(segment: Segment, table: int, keys: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Rows as a store over the segment gives them; all must be there."""
    capacities = [Capacity(arena_rows=1, keys=table.rows) for table in segment.tables]
    rows, found = StoreWriter.create(segment, capacities).generation.rows(table, keys, 1)
    assert found.all()
    return rows


def build_one(folder: Path, row_type: RowType, rows: NDArray[np.float32]) -> Segment:
    with SegmentBuilder(folder, "one.seg") as builder:
        table = builder.table("t", rows.shape[1], row_type=row_type, rows=len(rows))
        table.add(KEYS[: len(rows)], rows)
        builder.finish()
    return Segment.open(folder / "one.seg")


def test_a_segment_says_what_it_holds(tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path, "base.seg", model_version=42) as builder:
        users = builder.table("users", 3, rows=10)
        users.add(KEYS[:2], values(2, 3))
        users.add(KEYS[2:], values(2, 3))
        items = builder.table("items", 16, row_type="f16", keys="dense_id", rows=4)
        items.add(None, values(4, 16))
        size_bytes = builder.finish()

    segment = Segment.open(tmp_path / "base.seg")

    assert segment.model_version == 42
    assert segment.format == 1
    assert segment.bytes == size_bytes == (tmp_path / "base.seg").stat().st_size
    first, second = segment.tables
    assert (first.name, first.dim, first.row_type, first.keys, first.rows) == (
        "users", 3, "f32", "hashed", 4,
    )  # fmt: skip
    assert (second.name, second.row_type, second.keys, second.groups) == (
        "items", "f16", "dense_id", 0,
    )  # fmt: skip
    np.testing.assert_array_equal(
        read(segment, 0, KEYS), np.concatenate([values(2, 3), values(2, 3)])
    )
    assert segment.probes(0).most >= 1
    with pytest.raises(InvalidInput, match="no table 2"):
        segment.probes(2)


@pytest.mark.parametrize("dim", [1, 2, 7, 31, 64, 1024])
@pytest.mark.parametrize("row_type", ["f32", "f16", "bf16"])
def test_rows_are_rounded_to_the_nearest_number_of_their_type(
    tmp_path: Path, row_type: RowType, dim: int
) -> None:
    rows = values(4, dim)
    segment = build_one(tmp_path, row_type, rows)

    bits = rows.view(np.uint32)
    expected = {
        "f32": rows,
        "f16": rows.astype(np.float16).astype(np.float32),
        "bf16": ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32),
    }[row_type]
    np.testing.assert_array_equal(read(segment, 0, KEYS), expected)


@pytest.mark.parametrize("dim", [1, 2, 7, 64, 1000])
def test_int8_rows_are_off_by_half_a_step_at_most(tmp_path: Path, dim: int) -> None:
    rows = values(4, dim) * np.array([[1], [100], [0.01], [0]], np.float32)
    segment = build_one(tmp_path, "int8", rows)

    # A step is 1/255 of the range; scale and bias of f16 widen it by 2^-9 of what they hold.
    spread = rows.max(axis=1) - rows.min(axis=1)
    step = spread / 255 + 2.0**-8 * (spread / 255 + np.abs(rows).max(axis=1) / 100)
    off = np.abs(read(segment, 0, KEYS) - rows).max(axis=1)
    assert (off <= step / 2 + 1e-7).all()


def test_rows_that_are_encoded_already_arrive_bit_by_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    whole = rng.integers(-128, 128, (4, 7), np.int8)
    scale = rng.random(4).astype(np.float16)
    bias = rng.standard_normal(4).astype(np.float16)
    halves = rng.standard_normal((4, 5)).astype(np.float16)
    bits = (values(4, 9).view(np.uint32) >> 16).astype(np.uint16)
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("int8", 7, row_type="int8", rows=4).add_int8(KEYS, whole, scale, bias)
        builder.table("f16", 5, row_type="f16", rows=4).add(KEYS, halves)
        builder.table("bf16", 9, row_type="bf16", rows=4).add_bf16(KEYS, bits)
        builder.finish()

    segment = Segment.open(tmp_path / "base.seg")

    exact = scale[:, None].astype(np.float64) * whole + bias[:, None]
    np.testing.assert_allclose(read(segment, 0, KEYS), exact, rtol=0, atol=1e-6)  # f32 rounds
    np.testing.assert_array_equal(read(segment, 1, KEYS), halves)
    np.testing.assert_array_equal(
        read(segment, 2, KEYS), (bits.astype(np.uint32) << 16).view(np.float32)
    )


def test_large_chunks_of_another_type_or_layout_are_taken_in_pieces(tmp_path: Path) -> None:
    halves = values(40_000, 64).astype(np.float16)
    keys = np.arange(2 * len(halves), dtype=np.int64)[::2] - 7
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("t", 64, row_type="f16", rows=len(halves)).add(keys, halves)
        builder.table("turned", 40_000 // 100, rows=64).add(
            np.arange(64, dtype=np.uint64), halves.astype(np.float32).T[:, ::100]
        )
        builder.finish()

    segment = Segment.open(tmp_path / "base.seg")

    picked = np.array([0, 1, 16_384, 39_999])
    np.testing.assert_array_equal(read(segment, 0, keys[picked].view(np.uint64)), halves[picked])
    np.testing.assert_array_equal(
        read(segment, 1, np.arange(64, dtype=np.uint64)), halves.T[:, ::100]
    )


def test_signed_and_unsigned_keys_are_the_same_64_bits(tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("t", 2, rows=3).add(np.array([-1, -(2**63), 3], np.int64), values(3, 2))
        builder.finish()

    segment = Segment.open(tmp_path / "base.seg")

    keys = np.array([2**64 - 1, 2**63, 3], np.uint64)
    np.testing.assert_array_equal(read(segment, 0, keys), values(3, 2))


def test_duplicate_keys_are_refused_or_the_last_wins(tmp_path: Path) -> None:
    twice = np.array([3, 4, 3], np.uint64)
    with SegmentBuilder(tmp_path, "last.seg") as builder:
        builder.table("t", 2, rows=3, duplicates="last_wins").add(twice, values(3, 2))
        builder.finish()
    with SegmentBuilder(tmp_path, "refused.seg") as builder:
        with pytest.raises(InvalidInput, match="3"):
            builder.table("t", 2, rows=3).add(twice, values(3, 2))
        with pytest.raises(RuntimeError, match="given up"):
            builder.finish()

    segment = Segment.open(tmp_path / "last.seg")

    assert segment.tables[0].rows == 2
    np.testing.assert_array_equal(read(segment, 0, twice[1:]), values(3, 2)[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["last.seg"]


def test_what_is_not_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("t", 2, rows=3).add(KEYS[:3], values(3, 2))
    assert list(tmp_path.iterdir()) == []

    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("t", 2, keys="dense_id", rows=3).add(None, values(2, 2))
        with pytest.raises(InvalidInput):  # a row is missing
            builder.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "base.seg").write_text("mine")

    with SegmentBuilder(tmp_path, "base.seg") as builder:
        builder.table("t", 2, rows=3).add(KEYS[:3], values(3, 2))
        with pytest.raises(FileExistsError) as refused:
            builder.finish()

    assert (tmp_path / "base.seg").read_text() == "mine"
    assert str(tmp_path) not in str(refused.value)


def test_arrays_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    def refuse(match: str, keys: Any, rows: NDArray[Any], kind: Any = "f32") -> None:
        builder = SegmentBuilder(tmp_path, "base.seg")
        with pytest.raises(InvalidInput, match=match):
            builder.table("t", 2, row_type=kind, rows=3).add(keys, rows)
        builder.close()

    refuse("float64", KEYS, values(4, 2).astype(np.float64))
    refuse(r"shape \(rows, dim\)", KEYS, values(4, 2).ravel())
    refuse("expected 2 on axis 1, got 3", KEYS, values(4, 3))
    refuse(r"\(4,\) keys for values of shape \(3, 2\)", KEYS, values(3, 2))
    refuse("keys: expected int64 or uint64, got int32", np.arange(4, dtype=np.int32), values(4, 2))
    refuse("row type 'f8': expected one of f32, f16, bf16, int8", KEYS, values(4, 2), "f8")
    refuse("3", KEYS, values(4, 2))  # four rows where three were announced
    refuse("finite", KEYS[:3], np.full((3, 2), np.nan, np.float32), "int8")
    assert list(tmp_path.iterdir()) == []


def test_int8_rows_need_a_table_of_their_type_and_finite_scales(tmp_path: Path) -> None:
    whole, one = np.zeros((4, 2), np.int8), np.ones(4, np.float16)
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        with pytest.raises(InvalidInput, match="table of f32 rows"):
            builder.table("f32", 2, rows=4).add_int8(KEYS, whole, one, one)
        table = builder.table("int8", 2, row_type="int8", rows=4)
        with pytest.raises(InvalidInput, match="bias: expected finite"):
            table.add_int8(KEYS, whole, one, one * np.float16(np.inf))
        with pytest.raises(InvalidInput, match=r"scale: expected float16 of shape \(4,\)"):
            table.add_int8(KEYS, whole, one[:3], one)


def test_a_table_takes_no_rows_once_another_has_begun(tmp_path: Path) -> None:
    with SegmentBuilder(tmp_path, "base.seg") as builder:
        first = builder.table("a", 2, rows=4)
        builder.table("b", 2, rows=4)
        with pytest.raises(RuntimeError, match="another table"):
            first.add(KEYS, values(4, 2))


@pytest.mark.parametrize("residency", ["lazy", "populated", "locked"])
@pytest.mark.parametrize("base", ["map", "copy", "auto"])
def test_every_way_of_opening_reads_the_same(
    tmp_path: Path, base: Base, residency: Residency
) -> None:
    build_one(tmp_path, "f32", values(4, 8))

    segment = Segment.open(
        tmp_path / "one.seg",
        base=base,
        residency=residency,
        available_bytes=2**40,
    )
    (tmp_path / "one.seg").unlink()

    segment.verify()
    np.testing.assert_array_equal(read(segment, 0, KEYS), values(4, 8))
    assert (segment.memory_fd is None) == (base == "map")
    assert 0 <= segment.huge_page_ratio() <= 1


def test_auto_maps_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "is_steady", lambda fd: True)
    segment = build_one(tmp_path, "f32", values(4, 8))

    short = Segment.open(tmp_path / "one.seg", base="auto", available_bytes=2 * segment.bytes - 1)

    assert short.memory_fd is None


def test_files_that_may_stop_being_readable_are_told_by_their_file_system(tmp_path: Path) -> None:
    (tmp_path / "proc/self/fdinfo").mkdir(parents=True)
    (tmp_path / "proc/self/fdinfo/5").write_text("pos:\t0\nflags:\t02\nmnt_id:\t41\nino:\t7\n")

    def is_steady_on(kind: str) -> bool:
        mounts = f"4 1 8:1 / / rw - ext4 /dev/a rw\n41 1 0:9 / /data rw shared:1 - {kind} b rw\n"
        (tmp_path / "proc/self/mountinfo").write_text(mounts)
        return is_steady(5, tmp_path)

    assert all(map(is_steady_on, ("ext4", "xfs", "tmpfs", "btrfs")))
    assert not any(map(is_steady_on, ("nfs4", "fuse", "fuse.s3fs", "overlay", "cifs")))
    assert not is_steady(6, tmp_path)


def test_auto_copies_from_where_reading_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_one(tmp_path, "f32", values(4, 8))
    opened = []
    for steady in (True, False):
        monkeypatch.setattr(segments, "is_steady", lambda fd, steady=steady: steady)
        opened.append(Segment.open(tmp_path / "one.seg", base="auto").memory_fd is not None)

    assert opened == [False, True]


def test_a_copy_is_mapped_again_by_its_descriptor(tmp_path: Path) -> None:
    build_one(tmp_path, "f32", values(4, 8))
    copy = Segment.open(tmp_path / "one.seg", base="copy")
    assert copy.memory_fd is not None

    again = Segment.map(copy.memory_fd)
    del copy

    np.testing.assert_array_equal(read(again, 0, KEYS), values(4, 8))


def test_a_file_that_is_not_there_is_told_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        Segment.open(tmp_path / "secret.seg")
    assert "secret" not in str(refused.value)


def test_verification_reports_progress_and_may_be_stopped(tmp_path: Path) -> None:
    segment = build_one(tmp_path, "f32", values(4, 8))
    done: list[int] = []

    segment.verify(done.append)

    assert done == sorted(done)
    assert done[-1] == pytest.approx(segment.bytes, abs=4096 * 3)

    def stop(_: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        segment.verify(stop)


def use(path: Path) -> None:
    segment = Segment.open(path)
    read(segment, 0, KEYS)
    segment.verify()


def damaged(folder: Path, data: bytes) -> str:
    """Open and use a damaged file; returns what was said. It must say something."""
    path = folder / "damaged.seg"
    path.write_bytes(data)
    with pytest.raises((Corrupt, Unsupported)) as refused:
        use(path)
    assert "damaged.seg" not in str(refused.value)
    return str(refused.value)


def test_truncated_files_are_refused_wherever_they_end(tmp_path: Path) -> None:
    build_one(tmp_path, "f32", values(4, 8))
    data = (tmp_path / "one.seg").read_bytes()

    for length in {0, 1, 8, 100, 4095, 4096, len(data) // 2, len(data) - 4096, len(data) - 1}:
        assert damaged(tmp_path, data[:length])


def test_any_flipped_bit_of_the_header_is_found_on_opening(tmp_path: Path) -> None:
    build_one(tmp_path, "f32", values(4, 8))
    data = bytearray((tmp_path / "one.seg").read_bytes())
    path = tmp_path / "flipped.seg"

    for place in range(0, 4096, 7):
        data[place] ^= 1 << place % 8
        path.write_bytes(data[:])
        with pytest.raises((Corrupt, Unsupported)):
            Segment.open(path)
        data[place] ^= 1 << place % 8


def test_flipped_bits_of_keys_index_and_rows_are_found_by_verification(tmp_path: Path) -> None:
    build_one(tmp_path, "f32", values(4, 8))
    data = (tmp_path / "one.seg").read_bytes()
    used = [place for place in range(4096, len(data)) if data[place]]

    said = {
        damaged(tmp_path, data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
        for place in used[:: max(1, len(used) // 40)]
    }

    assert any("'t'" in text for text in said)  # names the table


def test_files_of_others_and_of_newer_formats_are_told_apart(tmp_path: Path) -> None:
    build_one(tmp_path, "f32", values(4, 8))
    data = (tmp_path / "one.seg").read_bytes()

    assert damaged(tmp_path, b"PK\x03\x04" + bytes(100_000))
    assert damaged(tmp_path, bytes(100_000))
    order = data.index(struct.pack("<I", 0x01020304))
    turned = data[:order] + struct.pack(">I", 0x01020304) + data[order + 4 :]
    path = tmp_path / "turned.seg"
    path.write_bytes(turned)
    with pytest.raises((Unsupported, Corrupt)):
        Segment.open(path)


def test_a_generation_does_not_go_with_a_segment_of_another_dim(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    segment = build_one(tmp_path, "f32", values(4, 8))
    other = build_one(tmp_path / "a", "f32", values(4, 9))
    writer = StoreWriter.create(segment, [Capacity(4, 8)])

    with pytest.raises(Corrupt):
        Generation.map(writer.fd, other)
    with pytest.raises((Corrupt, OSError)), open(os.devnull, "rb") as null:
        Generation.map(null.fileno(), segment)
