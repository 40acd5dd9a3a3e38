import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from anabranch_testing.graphs import scale_model, write_graph

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


def publish(model_dir: Path, onnx: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch_server", "publish", str(model_dir), str(onnx), *options],
        capture_output=True,
        text=True,
        timeout=60,
        env=SURROUNDINGS,
        check=False,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def test_publish_takes_neither_a_repository_nor_a_version_for_a_model(
    repository: Path, tmp_path: Path
) -> None:
    onnx = scale_model(tmp_path / "trained").path
    published = publish(repository / "ctr", onnx)
    assert str(repository / "ctr" / "1") in published.stdout

    too_high = publish(repository, onnx)
    too_deep = publish(repository / "ctr" / "1", onnx)

    assert (too_high.returncode, too_deep.returncode) == (2, 2)
    assert "it holds models (ctr): name the model too" in too_high.stderr
    assert "looks like a version of a model" in too_deep.stderr
    assert [path.name for path in repository.iterdir()] == ["ctr"]
    assert [path.name for path in (repository / "ctr").iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("", "model.onnx: no ONNX model"),
        ("--model-yaml", "model.yaml: line 2: "),
        ("--warmup", "warmup/a.npz: 'z'"),
        ("--golden", "golden/a.json: missing key 'request'"),
    ],
)
def test_what_no_server_could_serve_is_not_published(
    repository: Path, tmp_path: Path, option: str, said: str
) -> None:
    onnx = scale_model(tmp_path / "trained").path
    (tmp_path / "README.md").write_text("# Model\nIt scores: *well*\n")
    (tmp_path / "a.json").write_text("{}")
    np.savez(tmp_path / "a.npz", z=np.zeros((1, 4), np.float32))
    options = {
        "": [],
        "--model-yaml": ["--model-yaml", str(tmp_path / "README.md")],
        "--warmup": ["--warmup", str(tmp_path / "a.npz")],
        "--golden": ["--golden", str(tmp_path / "a.json")],
    }[option]

    refused = publish(repository / "ctr", onnx if option else tmp_path / "README.md", *options)

    assert refused.returncode == 1
    assert refused.stderr.startswith(f"anabranch: nothing was published: {said}")
    assert not list(repository.iterdir())


LOOKED_UP = """\
lookups:
  - {feature: id, table: items, output: {input: x, columns: [0, 4]}}
"""


def test_tables_and_the_age_of_the_data_are_published(repository: Path, tmp_path: Path) -> None:
    onnx = scale_model(tmp_path / "trained").path
    (tmp_path / "model.yaml").write_text(LOOKED_UP)
    table = tmp_path / "items.safetensors"
    rows = {"keys": np.arange(3), "values": np.zeros((3, 4), np.float32)}
    save_file(rows, table)  # type: ignore[arg-type]  # its stub has arrays of one type
    options = ["--model-yaml", str(tmp_path / "model.yaml"), "--table", str(table)]

    published = publish(
        repository / "ctr", onnx, *options, "--step", "1200", "--event-time", "1764417655.5"
    )
    twice = publish(repository / "ctr", onnx, *options, "--table", str(table))

    assert published.returncode == 0, published.stderr
    manifest = json.loads((repository / "ctr" / "1" / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["tables"]] == ["items"]
    assert (manifest["step"], manifest["event_time"]) == (1200, 1764417655.5)
    assert twice.returncode == 2
    assert "two files have the same name" in twice.stderr


def test_publish_takes_vocabularies_along(repository: Path, tmp_path: Path) -> None:
    graph = """
      g (int64[N] device) => (float[N] ctr)
      {
        ctr = Cast <to = 1> (device)
      }
    """
    write_graph(tmp_path, graph)
    (tmp_path / "model.yaml").write_text(
        "format: 1\n"
        "features:\n"
        "  - {name: device, side: candidate, type: string, vocabulary: {file: vocab/device.txt}}\n"
        "ranking: {id: device, score: {output: ctr}}\n"
    )
    (tmp_path / "device.txt").write_text("ios\nandroid\n")
    options = ["--model-yaml", str(tmp_path / "model.yaml")]
    onnx = tmp_path / "model.onnx"

    without = publish(repository / "ctr", onnx, *options)
    options += ["--vocabulary", str(tmp_path / "device.txt")]
    published = publish(repository / "ctr", onnx, *options)

    assert without.returncode == 1
    assert "vocab/device.txt" in without.stderr
    assert (published.returncode, published.stderr) == (0, "")
    place = repository / "ctr" / "1"
    assert (place / "vocab" / "device.txt").read_text() == "ios\nandroid\n"
