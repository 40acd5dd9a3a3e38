import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anabranch_testing.graphs import scale_model

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
