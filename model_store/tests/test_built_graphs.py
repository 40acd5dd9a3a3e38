"""Optimised graphs are built once, checked when they are found, and cleared by size."""

import os
from pathlib import Path

import pytest

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_wire.errors import InvalidInput, Unavailable


class _Writer:
    """Writes one file and counts how often."""

    def __init__(self, content: bytes = b"weights" * 100) -> None:
        self.content = content
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "model.onnx").write_bytes(self.content)


def test_a_key_is_built_once_and_found_by_a_later_process(tmp_path: Path) -> None:
    write = _Writer()

    first = BuiltGraphs(tmp_path / "cache", 1 << 20).get("a", write)
    again = BuiltGraphs(tmp_path / "cache", 1 << 20).get("a", write)
    other = BuiltGraphs(tmp_path / "cache", 1 << 20).get("b", write)

    assert first == again != other
    assert write.calls == 2
    assert (first / "model.onnx").read_bytes() == write.content
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "checks"])
def test_what_is_damaged_is_built_anew(tmp_path: Path, damage: str) -> None:
    write = _Writer()
    graphs = BuiltGraphs(tmp_path, 1 << 20)
    file = graphs.get("a", write) / "model.onnx"
    if damage == "flip":
        file.write_bytes(bytes([write.content[0] ^ 1]) + write.content[1:])
    elif damage == "truncate":
        os.truncate(file, 10)
    elif damage == "remove":
        file.unlink()
    else:
        os.truncate(file.with_name("built.json"), 5)

    place = graphs.get("a", write)

    assert write.calls == 2
    assert (place / "model.onnx").read_bytes() == write.content


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_bytes(b"x")
        raise InvalidInput("no such operator")

    with pytest.raises(InvalidInput, match="no such operator"):
        BuiltGraphs(tmp_path, 1 << 20).get("a", write)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file")

    with pytest.raises(Unavailable, match="cache folder"):
        BuiltGraphs(tmp_path / "cache", 1 << 20).get("a", _Writer())


def test_pruning_keeps_what_is_in_use_and_what_was_used_last(tmp_path: Path) -> None:
    graphs = BuiltGraphs(tmp_path, 3000)
    places = [graphs.get(key, _Writer(b"x" * 1000)) for key in "abcd"]
    for age, place in enumerate(places):
        os.utime(place, (1000 + age, 1000 + age))
    (tmp_path / ".building-left").mkdir()

    graphs.prune(in_use=[places[0]])

    assert sorted(tmp_path.iterdir()) == sorted([places[0], places[2], places[3]])


def test_folders_within_are_kept_and_checked_too(tmp_path: Path) -> None:
    calls = []

    def write(folder: Path) -> None:
        calls.append(folder)
        (folder / "weights").mkdir()
        (folder / "weights" / "all.bin").write_bytes(b"numbers")

    graphs = BuiltGraphs(tmp_path, 1 << 20)
    place = graphs.get("a", write)
    assert graphs.get("a", write) == place
    assert len(calls) == 1

    (place / "weights" / "all.bin").write_bytes(b"Numbers")
    graphs.get("a", write)

    assert len(calls) == 2
    BuiltGraphs(tmp_path, 0).prune([])
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_goes_with_its_block(tmp_path: Path) -> None:
    graphs = BuiltGraphs(tmp_path / "cache", 1 << 20)

    with graphs.scratch() as folder:
        (folder / "half").write_bytes(b"x")
        assert folder.parent == tmp_path / "cache"

    assert list((tmp_path / "cache").iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(Unavailable, match="cache folder"),
        BuiltGraphs(tmp_path / "file" / "cache", 1).scratch(),
    ):
        pass
