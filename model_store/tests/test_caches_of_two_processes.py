"""Caches that two processes write and prune at the same time: nothing that is needed goes."""

import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.deltas.weight_files import WeightFiles, read_weights
from anabranch_model_store.file_cache import FileCache
from anabranch_model_store.segment_cache import link_or_copy

Work = Callable[[Path], None]


class Beside:
    """A process that does a piece of work in a folder; its end is waited for."""

    def __init__(self, work: Work, folder: Path) -> None:
        self._process = get_context("fork").Process(target=work, args=(folder,))
        self._process.start()

    def end(self) -> None:
        self._process.join(60)
        assert self._process.exitcode == 0


def wait_for(path: Path) -> None:
    end_s = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end_s, f"no {path.name}"
        time.sleep(0.005)


def build_slowly(folder: Path) -> None:
    def write(building: Path) -> None:
        (building / "model.onnx").write_bytes(b"half")
        (folder / "begun").touch()
        wait_for(folder / "go")
        (building / "model.onnx").write_bytes(b"whole")

    BuiltGraphs(folder / "graphs", 0).get("slow", write)


def test_a_prune_leaves_alone_what_another_process_builds_and_has_just_built(
    tmp_path: Path,
) -> None:
    since = time.time() - 1
    beside = Beside(build_slowly, tmp_path)
    wait_for(tmp_path / "begun")
    graphs = BuiltGraphs(tmp_path / "graphs", 0)
    graphs.prune([], since)
    (tmp_path / "go").touch()
    beside.end()

    graphs.prune([], since)

    place = graphs.get("slow", lambda folder: pytest.fail("it was built before"))
    assert (place / "model.onnx").read_bytes() == b"whole"
    # What is older than what the other is at goes.
    graphs.prune([], time.time() + 1)
    assert list((tmp_path / "graphs").iterdir()) == []


def test_what_both_build_at_once_is_there_for_both(tmp_path: Path) -> None:
    beside = Beside(build_slowly, tmp_path)
    wait_for(tmp_path / "begun")
    graphs = BuiltGraphs(tmp_path / "graphs", 0)
    place = graphs.get("slow", lambda folder: (folder / "model.onnx").write_bytes(b"whole"))
    (tmp_path / "go").touch()

    beside.end()

    assert (place / "model.onnx").read_bytes() == b"whole"
    assert [one.name for one in (tmp_path / "graphs").iterdir()] == [place.name]


def file_cache(folder: Path) -> FileCache:
    def verify(place: Path, on_bytes: Callable[[int], None]) -> None:
        if place.read_bytes() != b"whole":
            raise OSError("damaged")

    return FileCache(folder / "files", 0, ".dat", verify)


def link_slowly(folder: Path) -> None:
    source = folder / f"source-{os.getpid()}"
    source.write_bytes(b"whole")

    def write(target: Path, name: str) -> None:
        (folder / "begun").touch()
        wait_for(folder / "go")
        os.link(source, target / name)  # as segments are published: never over another one

    file_cache(folder).get("one", write)


def test_a_file_that_another_process_has_made_meanwhile_is_taken(tmp_path: Path) -> None:
    beside = Beside(link_slowly, tmp_path)
    wait_for(tmp_path / "begun")
    source = tmp_path / "source"
    source.write_bytes(b"whole")
    place = file_cache(tmp_path).get("one", lambda to, name: link_or_copy(source, to / name))
    (tmp_path / "go").touch()

    beside.end()

    assert place.read_bytes() == b"whole"


def test_a_file_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    def write(folder: Path, name: str) -> None:
        raise FileExistsError("no luck")

    with pytest.raises(Exception, match="cache folder"):
        file_cache(tmp_path).get("one", write)


def weights(seed: int, index: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return {"w": np.full((8, 8), 1000 * seed + index, np.float32)}


def keep_and_prune(folder: Path, seed: int = 1) -> None:
    """Keep weights, some of them the other's too, and prune in between with no limit at all."""
    files, kept = WeightFiles(folder, 0), []
    since = float((folder.parent / "since").read_text())
    for index in range(40):
        kept.append((index, files.keep(weights(seed, index))))
        files.keep(weights(0, index))
        files.prune([], since)
    for index, place in kept:
        np.testing.assert_array_equal(read_weights(place)["w"], weights(seed, index)["w"])


def test_two_that_keep_and_prune_at_once_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "since").write_text(f"{time.time() - 1}")
    beside = Beside(keep_and_prune, tmp_path / "weights")

    keep_and_prune(tmp_path / "weights", 2)

    beside.end()
    assert len(list((tmp_path / "weights").iterdir())) == 120
    WeightFiles(tmp_path / "weights", 0).prune([])
    assert list((tmp_path / "weights").iterdir()) == []
