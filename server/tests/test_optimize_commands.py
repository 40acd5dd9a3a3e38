"""`anabranch optimize` and `anabranch verify`, as people and machines see them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_testing.corpus import tree_models

MODEL = next(one for one in tree_models() if one.name == "deepctr_torch_din_ts17")


def anabranch(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch_server", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("repository") / "din" / "1"
    done = anabranch(
        "optimize", MODEL.folder / "model.onnx", "-o", place, "--min-table-bytes", 0,
        "--keep-original",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("din: ")
    assert "Tables in the store" in done.stdout
    assert done.stderr == f"anabranch: written to {place}\n"
    return place


def test_machines_get_the_report_on_one_line(tmp_path: Path) -> None:
    done = anabranch("optimize", MODEL.folder / "model.onnx", "-o", tmp_path / "m" / "2", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert report == json.loads((tmp_path / "m" / "2" / "report.json").read_bytes())
    assert {"model", "lookups", "parity", "structure_hash", "seconds", "peak_bytes"} <= set(report)
    assert {"max_abs_diff", "cases"} <= set(report["parity"])
    for lookup in report["lookups"]:
        assert {"table", "rows", "dim", "cut", "reason"} <= set(lookup)
        assert lookup["cut"] == (lookup["reason"] == "")


def test_a_sound_version_is_verified(folder: Path) -> None:
    people, machines = anabranch("verify", folder), anabranch("verify", folder, "--json")

    assert (people.returncode, people.stderr) == (0, "")
    assert "files are as they should be; compared with the original on" in people.stdout
    assert (machines.returncode, machines.stderr) == (0, "")
    found = json.loads(machines.stdout)
    assert (found["ok"], found["errors"]) == (True, [])
    assert found["parity"]["cases"] > 0
    assert found["parity"]["max_abs_diff"] <= 1e-5
    paths = {file["path"] for file in found["files"]}
    assert {"plan.json", "dense.onnx", "model.onnx", "tables/0000.seg"} <= paths


def test_a_damaged_version_is_told_and_fails(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "din" / "1"
    place.parent.mkdir()
    subprocess.run(["cp", "-r", str(folder), str(place)], check=True)
    (place / "plan.json").write_text("{}")

    people, machines = anabranch("verify", place), anabranch("verify", place, "--json")

    assert (people.returncode, machines.returncode) == (1, 1)
    assert people.stderr.startswith("anabranch: plan.json: expected ")
    found = json.loads(machines.stdout)
    assert found["ok"] is False
    assert found["errors"][0].startswith("plan.json: expected ")


def test_a_version_as_it_was_exported_is_verified_too(tmp_path: Path) -> None:
    published = anabranch("publish", tmp_path / "ctr", MODEL.folder / "model.onnx")
    assert published.returncode == 0

    found = json.loads(anabranch("verify", tmp_path / "ctr" / "1", "--json").stdout)

    assert (found["ok"], found["parity"]) == (True, None)
    assert [file["path"] for file in found["files"]] == ["model.onnx"]


def test_what_fails_is_said_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")

    taken = anabranch("optimize", MODEL.folder / "model.onnx", "-o", folder)
    bad = anabranch("optimize", tmp_path / "bad.onnx", "-o", tmp_path / "m" / "1")
    missing = anabranch("verify", tmp_path / "m" / "1")

    assert [one.returncode for one in (taken, bad, missing)] == [1, 1, 1]
    assert "nothing was written: " in taken.stderr
    assert "has something in it" in taken.stderr
    assert bad.stderr.startswith("anabranch: nothing was written: bad.onnx: no ONNX model")
    assert missing.stderr.endswith("no such folder\n")
    assert not (tmp_path / "m").exists()


def test_wrong_usage_is_told_apart(tmp_path: Path) -> None:
    assert anabranch("optimize", MODEL.folder / "model.onnx").returncode == 2
    negative = anabranch(
        "optimize", MODEL.folder / "model.onnx", "-o", tmp_path / "x", "--min-table-bytes", -1
    )
    assert negative.returncode == 2
