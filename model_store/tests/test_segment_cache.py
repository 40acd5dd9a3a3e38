import os
from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.segment_cache import SegmentCache, link_or_copy
from anabranch_runtime.store import Segment, SegmentBuilder
from anabranch_wire.errors import InvalidInput, Unavailable


class Writer:
    """Writes a segment of so many rows, and counts how often it was asked to."""

    def __init__(self, rows: int = 10) -> None:
        self.rows = rows
        self.calls = 0

    def __call__(self, folder: Path, name: str) -> None:
        self.calls += 1
        with SegmentBuilder(folder, name) as builder:
            table = builder.table("t", 4, rows=self.rows)
            table.add(np.arange(self.rows), np.ones((self.rows, 4), np.float32))
            builder.finish()


def cache_in(folder: Path, limit_bytes: int = 1 << 30) -> SegmentCache:
    return SegmentCache(folder / "segments", limit_bytes)


def test_the_same_content_is_made_once(tmp_path: Path) -> None:
    writer = Writer()
    first = cache_in(tmp_path).get("key", writer)
    assert cache_in(tmp_path).get("key", writer) == first
    assert (writer.calls, first.suffix) == (1, ".seg")
    assert first.parent.stat().st_mode & 0o777 == 0o700
    assert cache_in(tmp_path).get("another", writer) != first


def test_a_segment_that_was_there_is_read_to_the_last_byte(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    size = cache.get("key", Writer()).stat().st_size
    seen: list[int] = []
    cache.get("key", Writer(), seen.append)
    assert seen[-1] == size


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied"])
def test_a_damaged_segment_is_made_anew(tmp_path: Path, damage: str) -> None:
    cache, writer = cache_in(tmp_path), Writer()
    path = cache.get("key", writer)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    kept = {"flipped": len(data), "cut": len(data) - 1, "emptied": 0}[damage]
    path.write_bytes(data[:kept])
    assert cache.get("key", writer) == path
    assert writer.calls == 2
    Segment.open(path).verify()


def test_what_fails_to_be_written_leaves_nothing(tmp_path: Path) -> None:
    def refuse(folder: Path, name: str) -> None:
        with SegmentBuilder(folder, name) as builder:
            builder.table("t", 4, rows=1)
            raise InvalidInput("no")

    cache = cache_in(tmp_path)
    with pytest.raises(InvalidInput, match="no"):
        cache.get("key", refuse)
    assert list((tmp_path / "segments").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "segments").write_text("in the way")
    with pytest.raises(Unavailable, match="cache folder: "):
        cache_in(tmp_path).get("key", Writer())


def test_pruning_keeps_what_is_in_use_and_what_was_used_last(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    used, old, new = (cache.get(key, Writer()) for key in ("used", "old", "new"))
    for age, path in enumerate((used, old, new)):
        os.utime(path, (age, age))
    (used.parent / ".segment-0123456789abcdef.tmp").write_bytes(b"of a writer that died")
    cache_in(tmp_path, new.stat().st_size).prune([used])
    assert sorted(used.parent.iterdir()) == sorted((used, new))


def test_what_another_server_is_writing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    folder.mkdir()
    with SegmentBuilder(folder, "other.seg") as builder:
        table = builder.table("t", 4, rows=1)
        table.add(np.arange(1), np.ones((1, 4), np.float32))
        cache_in(tmp_path, 0).prune([])
        builder.finish()

    Segment.open(folder / "other.seg").verify()


def test_a_mapped_segment_outlives_its_file(tmp_path: Path) -> None:
    cache = cache_in(tmp_path, 0)
    segment = Segment.open(cache.get("key", Writer()))
    cache.prune([])
    assert not list((tmp_path / "segments").iterdir())
    segment.verify()


def test_another_name_survives_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.seg"
    source.write_bytes(b"rows")
    link_or_copy(source, tmp_path / "linked.seg")
    assert (tmp_path / "linked.seg").samefile(source)

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    link_or_copy(source, tmp_path / "copied.seg")
    source.unlink()
    assert (tmp_path / "linked.seg").read_bytes() == b"rows"
    assert (tmp_path / "copied.seg").read_bytes() == b"rows"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copied.seg", "linked.seg"]
