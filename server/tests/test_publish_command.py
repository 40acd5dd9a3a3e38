import os
import subprocess
import sys
from pathlib import Path

from anabranch_testing.graphs import scale_model

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


def publish(model_dir: Path, onnx: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch_server", "publish", str(model_dir), str(onnx)],
        capture_output=True,
        text=True,
        timeout=60,
        env=SURROUNDINGS,
        check=False,
    )


def test_publish_takes_no_repository_for_a_model(tmp_path: Path) -> None:
    onnx = scale_model(tmp_path / "trained").path
    repository = tmp_path / "repository"
    repository.mkdir()
    published = publish(repository / "ctr", onnx)
    assert str(repository / "ctr" / "1") in published.stdout

    refused = publish(repository, onnx)

    assert refused.returncode == 2
    assert "it holds models (ctr): name the model too" in refused.stderr
    assert [path.name for path in repository.iterdir()] == ["ctr"]
