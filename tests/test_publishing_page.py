"""What the page on publishing shows is run as it stands."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from anabranch_testing.graphs import write_graph
from anabranch_testing.pages import blocks, run
from anabranch_wire import delta

PYTHON = blocks("docs/publishing.md", "python")
(COMMANDS,) = (code for code in blocks("docs/publishing.md", "") if "publish-delta" in code)
GRAPH = """
  g (int64[N] id) => (float[N] ctr)
  {
    ctr = Cast <to = 1> (id)
  }
"""


def test_python_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "export").mkdir()
    write_graph(tmp_path / "export", GRAPH)

    said = [run([sys.executable, "-c", code], tmp_path).split("\n") for code in PYTHON]

    assert said == [["1", ""], ["2", "[]", ""]]
    path = tmp_path / "models/ctr/1/deltas/00000002/delta.json"
    document = delta.decode(path.read_bytes())
    assert (document.replaces_from, document.step, document.event_time) == (1, 1200, 1764417655.0)


def test_commands_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "export").mkdir()
    write_graph(tmp_path / "export", GRAPH)
    np.savez(tmp_path / "rows.npz", keys=[3], values=np.ones((1, 4), np.float32))
    weights: Any = {"out.bias": np.zeros(1, np.float32)}
    np.savez(tmp_path / "dense.npz", **weights)

    for line in COMMANDS.strip().splitlines():
        command = line.replace("anabranch", f"{sys.executable} -m anabranch_server", 1)
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    path = tmp_path / "models/ctr/1/deltas/00000001/delta.json"
    assert delta.decode(path.read_bytes()).step == 1200
