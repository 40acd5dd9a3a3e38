import os
from pathlib import Path

import pytest

from anabranch_model_store.settling import (
    FileStat,
    FolderListing,
    is_settled,
    list_files,
    observe,
)
from anabranch_wire.errors import InvalidInput, Unavailable

OLD = FolderListing((FileStat("model.onnx", 10, 50_000_000_000),), 50_000_000_000)
GROWN = FolderListing((FileStat("model.onnx", 20, 50_000_000_000),), 50_000_000_000)


def test_a_new_folder_waits_even_if_its_files_are_old() -> None:
    first = observe(OLD, None, now_s=1000.0, wall_s=5000.0)
    assert not is_settled(first, now_s=1000.0, settle_s=5)
    assert not is_settled(first, now_s=1004.9, settle_s=5)
    second = observe(OLD, first, now_s=1005.0, wall_s=5005.0)
    assert is_settled(second, now_s=1005.0, settle_s=5)


def test_every_change_starts_the_wait_again() -> None:
    first = observe(OLD, None, now_s=0.0, wall_s=60.0)
    second = observe(GROWN, first, now_s=4.0, wall_s=64.0)
    assert not is_settled(second, now_s=8.9, settle_s=5)
    assert is_settled(second, now_s=9.0, settle_s=5)


def test_at_start_old_files_need_no_wait() -> None:
    old = observe(OLD, None, now_s=3.0, wall_s=56.0, at_start=True)
    assert is_settled(old, now_s=3.0, settle_s=5)
    young = observe(OLD, None, now_s=3.0, wall_s=52.0, at_start=True)
    assert not is_settled(young, now_s=3.0, settle_s=5)
    assert is_settled(young, now_s=6.0, settle_s=5)


def test_files_from_the_future_wait_like_new_ones() -> None:
    future = observe(OLD, None, now_s=3.0, wall_s=10.0, at_start=True)
    assert not is_settled(future, now_s=7.9, settle_s=5)
    assert is_settled(future, now_s=8.0, settle_s=5)


def test_all_files_but_deltas_are_listed(tmp_path: Path) -> None:
    for path in ("model.onnx", "warmup/a.npz", "deltas/00000001/delta.json", "x/deltas/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(path.encode())
    listing = list_files(tmp_path)
    assert [(file.path, file.bytes) for file in listing.files] == [
        ("model.onnx", 10),
        ("warmup/a.npz", 12),
        ("x/deltas/y", 10),
    ]
    assert listing == list_files(tmp_path)


def test_a_file_that_comes_grows_or_is_touched_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "model.onnx").write_bytes(b"1")
    os.utime(tmp_path / "model.onnx", (100, 100))
    os.utime(tmp_path / "sub", (100, 100))
    os.utime(tmp_path, (100, 100))
    before = list_files(tmp_path)
    assert before.modified_ns == 100_000_000_000
    os.utime(tmp_path / "model.onnx", (101, 101))
    touched = list_files(tmp_path)
    assert touched.modified_ns == 101_000_000_000
    (tmp_path / "sub" / "new").write_bytes(b"")
    os.utime(tmp_path / "sub" / "new", (99, 99))
    os.utime(tmp_path / "sub", (100, 100))
    added = list_files(tmp_path)
    assert len({before, touched, added}) == 3


def test_links_inside_are_followed_and_others_refused(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    (folder / "real").mkdir(parents=True)
    (folder / "real" / "model.onnx").write_bytes(b"1234")
    (folder / "model.onnx").symlink_to("real/model.onnx")
    (folder / "again").symlink_to("real")
    paths = [file.path for file in list_files(folder).files]
    assert paths == ["again/model.onnx", "model.onnx", "real/model.onnx"]
    (folder / "real" / "loop").symlink_to("..")
    with pytest.raises(InvalidInput, match="a link to a folder it lies in"):
        list_files(folder)
    (folder / "real" / "loop").unlink()
    (tmp_path / "secret").write_bytes(b"s")
    (folder / "out").symlink_to("../secret")
    with pytest.raises(InvalidInput, match="leads out of the folder"):
        list_files(folder)


def test_pipes_and_missing_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    with pytest.raises(InvalidInput, match=r"model\.onnx: neither a file nor a folder"):
        list_files(tmp_path)
    with pytest.raises(Unavailable):
        list_files(tmp_path / "absent")
