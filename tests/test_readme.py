"""What the README pages show is run as it stands, against a really started server."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_testing.graphs import write_graph
from anabranch_testing.pages import at, blocks, run
from anabranch_testing.servers import RunningServer, started_server

GRAPH = """
ctr (float[N, 416] x) => (float[N, 1] score)
{ mean = ReduceMean <axes = [1]> (x) score = Sigmoid(mean) }
"""
SERVE = ".venv/bin/anabranch serve models"


RANKING = "open_bandit"  # has tests of its own: test_readme_ranking.py
README_PYTHON = [code for code in blocks("README.md", "python") if RANKING not in code]
(START,) = (code for code in blocks("README.md", "") if SERVE in code)
(LOOK_AFTER,) = (code for code in blocks("README.md", "") if "anabranch publish" in code)
(CURL,) = (
    code for code in blocks("README.md", "") if code.startswith("curl") and RANKING not in code
)
SCORING, PUBLISHING, UPDATING = blocks("clients/python/README.md", "python")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that was started as the README says, but on free ports and without the wait."""
    folder = tmp_path_factory.mktemp("readme")
    write_graph(folder, GRAPH)
    *prepare, serve = START.splitlines()
    for line in prepare:
        run(["sh", "-c", line], folder)
    assert serve.startswith(SERVE)
    options = serve.removeprefix(SERVE).split()
    wait = ("--settle-s", "0")
    with started_server(folder / "models", folder, *options, *wait) as started:
        yield started


def test_a_copied_model_is_served(server: RunningServer) -> None:
    assert server.ready["models"] == {"ctr": "1"}


@pytest.mark.parametrize("code", README_PYTHON, ids=["tritonclient", "anabranch_client"])
def test_clients_score_as_shown(server: RunningServer, code: str, tmp_path: Path) -> None:
    assert "0.5" in run([sys.executable, "-c", at(server, code)], tmp_path)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_scores_as_shown(server: RunningServer, tmp_path: Path) -> None:
    answer = run(["bash", "-c", at(server, CURL)], tmp_path)

    assert '"name":"score","datatype":"FP32","shape":[1,1],"data":[1.0]' in answer.replace(" ", "")


def test_a_version_is_published_and_taken_back_as_shown(server: RunningServer) -> None:
    lines = LOOK_AFTER.splitlines()
    told = f"ANABRANCH_ADMIN_URL=http://{server.admin} {sys.executable} -m anabranch_server"

    printed = {
        line.split()[1]: run(
            ["sh", "-c", line.replace(".venv/bin/anabranch", told)], server.log.parent
        )
        for line in lines
    }

    assert list(printed) == ["publish", "reload", "status", "rollback", "unpin"]
    assert "READY  2       1" in printed["status"]


def test_the_page_of_the_client_scores_and_publishes_as_shown(tmp_path: Path) -> None:
    write_graph(
        tmp_path / "export", GRAPH.replace("416", "21").replace("(x)", "(X)").replace("] x", "] X")
    )
    (tmp_path / "repository").mkdir()
    printed = run([sys.executable, "-c", PUBLISHING], tmp_path)
    assert printed.startswith("1 sha256:")

    with started_server(tmp_path / "repository", tmp_path) as started:
        code = at(started, SCORING)
        # A machine that builds something else meanwhile need not answer in 50 ms.
        assert code.count("timeout_s=0.05") == 1
        printed = run([sys.executable, "-c", code.replace("0.05", "10")], tmp_path)
    assert "TensorSpec(name='X'" in printed
    assert "ctr 1 0" in printed


def test_the_page_of_the_client_publishes_changes_as_shown(tmp_path: Path) -> None:
    write_graph(tmp_path / "export", GRAPH)
    (tmp_path / "repository").mkdir()

    printed = run([sys.executable, "-c", PUBLISHING + UPDATING], tmp_path)

    assert printed.splitlines()[1] == "1"
    assert (tmp_path / "repository/ctr/1/deltas/00000001/delta.json").is_file()
