"""Weights of deltas in the cache folder: one file for each content, read back as written."""

import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors import safe_open

from anabranch_model_store.deltas.weight_files import WeightFiles, read_weights
from anabranch_wire.errors import Corrupt, NotFound

TYPES = (np.float32, np.float16, np.float64, ml_dtypes.bfloat16)
Arrays = dict[str, NDArray[Any]]


@st.composite
def drawn_weights(draw: st.DrawFn) -> Arrays:
    names = draw(st.lists(st.text(min_size=1, max_size=20), unique=True, max_size=5))
    found: Arrays = {}
    for number, name in enumerate(names):
        if name == "__metadata__":
            continue
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        array = np.asarray(np.random.default_rng(number).normal(size=shape))
        found[name] = array.astype(draw(st.sampled_from(TYPES)))
    return found


@given(drawn_weights())
@settings(max_examples=30)
def test_what_is_kept_is_read_back(weights: Arrays) -> None:
    with tempfile.TemporaryDirectory() as root:
        path = WeightFiles(Path(root) / "weights", 1 << 20).keep(weights)

        found = read_weights(path)

        assert found.keys() == weights.keys()
        for name, array in weights.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert found[name].tobytes() == array.tobytes()


def test_it_is_a_safetensors_file(tmp_path: Path) -> None:
    weights: Arrays = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float16)}
    path = WeightFiles(tmp_path, 1 << 20).keep(weights)

    with safe_open(path, framework="numpy") as file:
        assert sorted(file.keys()) == ["b", "w"]
        assert file.metadata()["format"] == "anabranch weights 1"
        np.testing.assert_array_equal(file.get_tensor("w"), weights["w"])


def test_the_same_weights_are_one_file_and_others_another(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path, 1 << 20)
    first = files.keep({"w": np.ones(3, np.float32)})
    written = first.stat().st_ino

    assert files.keep({"w": np.ones(3, np.float32)}) == first
    assert first.stat().st_ino == written
    for other in ({"w": np.zeros(3, np.float32)}, {"v": np.ones(3, np.float32)}):
        assert files.keep(other) != first
    assert files.keep({"w": np.ones((3, 1), np.float32)}) != first


def test_a_damaged_file_is_corrupt_and_is_made_anew(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path, 1 << 20)
    weights = {"w": np.ones(30, np.float32)}
    path = files.keep(weights)
    whole = path.read_bytes()
    damaged = (whole[:-1] + b"\x01", whole[:-8], whole[:40], b"", b"\xff" * 20, b"\0" * 8)
    for data in (*damaged, (2).to_bytes(8, "little") + b"[]"):
        path.write_bytes(data)
        with pytest.raises(Corrupt):
            read_weights(path)

    assert files.keep(weights) == path
    assert path.read_bytes() == whole


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"gone\.safetensors: no such file of weights"):
        read_weights(tmp_path / "gone.safetensors")


def test_what_is_in_use_stays_and_half_written_files_go(tmp_path: Path) -> None:
    files = WeightFiles(tmp_path, 0)
    kept = files.keep({"w": np.ones(3, np.float32)})
    files.keep({"w": np.zeros(3, np.float32)})
    (tmp_path / ".weights-1.tmp").write_bytes(b"x")

    files.prune([kept])

    assert list(tmp_path.iterdir()) == [kept]
