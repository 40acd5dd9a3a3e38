"""`anabranch inspect` and `anabranch rows`, as people and machines see them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_runtime.store import SegmentBuilder
from anabranch_testing.graphs import scale_model

KEYS = np.array([5, -1, 2**62], np.int64)
VALUES = np.array([[3, 4], [0, 1], [0.5, 0]], np.float32)


def anabranch(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch_server", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    scale_model(root)
    publish_version(
        root / "m", root / "model.onnx", tables={"t": Rows(KEYS, VALUES)}, step=7, event_time=5.5
    )
    return root / "m"


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("segments")
    with SegmentBuilder(folder, "a.seg", model_version=42) as builder:
        table = builder.table("hashed", 2, row_type="f16", rows=3)
        table.add(KEYS, VALUES)
        table = builder.table("dense", 2, keys="dense_id", rows=3)
        table.add(None, VALUES)
        builder.finish()
    return folder / "a.seg"


def test_a_model_is_shown_as_json(model: Path) -> None:
    done = anabranch("inspect", model, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert (shown["name"], shown["policy"], shown["labels"]) == ("m", {"latest": 1}, {})
    (version,) = shown["versions"]
    assert (version["version"], version["delta"], version["step"]) == (1, 0, 7)
    assert version["last_error"] is None
    assert version["tables"] == [
        {"name": "t", "rows": 3, "dim": 2, "dtype": "f32", "keys": "hashed",
         "file": "tables/0000.safetensors"}
    ]  # fmt: skip


def test_a_model_is_shown_to_people(model: Path) -> None:
    done = anabranch("inspect", model / "1")
    assert done.returncode == 0
    first, head, table = done.stdout.splitlines()
    assert first.startswith("m version 1, ")
    assert head.split() == ["name", "rows", "dim", "dtype", "keys", "file"]
    assert table.split() == ["t", "3", "2", "f32", "hashed", "tables/0000.safetensors"]


def test_a_segment_is_shown_with_its_checksums_proven(segment: Path) -> None:
    done = anabranch("inspect", segment, "--json")
    shown = json.loads(done.stdout)
    assert (shown["format"], shown["version"], shown["crc"]) == (1, 42, "ok")
    assert shown["bytes"] == segment.stat().st_size
    hashed, dense = shown["tables"]
    assert (hashed["name"], hashed["rows"], hashed["dtype"]) == ("hashed", 3, "f16")
    assert 0 < hashed["load"] <= 0.75
    assert hashed["mean_probe"] >= 1
    assert (dense["keys"], dense["load"], dense["mean_probe"]) == ("dense_id", 1.0, 1.0)
    assert "checksums ok" in anabranch("inspect", segment).stdout


def test_a_damaged_segment_fails(segment: Path, tmp_path: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[4100] ^= 1  # behind the header
    (tmp_path / "a.seg").write_bytes(data)
    done = anabranch("inspect", tmp_path / "a.seg", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"anabranch: {tmp_path / 'a.seg'}: ")


def test_what_is_not_there_fails(tmp_path: Path) -> None:
    done = anabranch("inspect", tmp_path / "gone")
    assert done.returncode == 1
    assert "no such folder" in done.stderr


@pytest.mark.parametrize("words", [["inspect"], ["verify"], ["rows", "t", "1"]])
def test_places_are_of_this_machine(model: Path, words: list[str]) -> None:
    command, *rest = words
    done = anabranch(command, "s3://bucket/ctr/1", *rest)
    assert done.returncode == 2
    said = " ".join(done.stderr.replace("│", " ").split())  # it is wrapped in a box
    assert "s3://bucket/ctr/1: expected a folder or file of this machine" in said
    assert "no such" not in anabranch(command, f"file://{model}/1", *rest).stderr


def test_rows_are_shown_as_json_negative_keys_too(model: Path) -> None:
    done = anabranch("rows", model, "t", "5", "-1", "4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found, negative, missing = json.loads(done.stdout)["rows"]
    assert found == {
        "key": 5, "found": True, "values": [3.0, 4.0], "norm": 5.0, "frequency": None,
        "step": None, "changed_by_delta": None,
    }  # fmt: skip
    assert (negative["key"], negative["values"]) == (-1, [0.0, 1.0])
    assert (missing["found"], missing["values"], missing["norm"]) == (False, [], None)


def test_rows_are_shown_to_people(model: Path) -> None:
    lines = anabranch("rows", model / "1", "t", "5", "4").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["key", "norm", "values"],
        ["5", "5", "3", "4"],
        ["4", "no", "row"],
    ]


@pytest.mark.parametrize("key", ["x", str(2**64)])
def test_what_is_no_key_is_wrong_usage(model: Path, key: str) -> None:
    done = anabranch("rows", model, "t", key)
    assert done.returncode == 2
    assert "no key; expected" in done.stderr


def test_a_table_that_is_not_there_fails_with_those_that_are(model: Path) -> None:
    done = anabranch("rows", model, "u", "1")
    assert done.returncode == 1
    assert "no table file for 'u'; it has 't'" in done.stderr
