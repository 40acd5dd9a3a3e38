"""What the page of the client shows is run as it stands, against a really started server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_testing.pages import blocks, run
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.spinning_models import write_spinning_model

PYTHON = blocks("docs/client.md", "python")
PRINTED = ("[12 11] [32.  29.9] 1", "[1 2]", "True CallCounts(requests=1, retries=0, hedges=0)")
(COMMANDS,) = (code for code in blocks("docs/client.md", "") if "anabranch rank" in code)
ITEMS = {"item_id": [11, 12, 13], "price": [9.9, 12.0, 3.5]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_spinning_model(repository / "shop")
    options = ("--settle-s", "0", "--workers", "1")
    with started_server(repository, tmp_path_factory.mktemp("s"), *options) as running:
        yield running


def placed(server: RunningServer, code: str) -> str:
    """Return the code with the server's addresses in place of those shown."""
    for shown in ("127.0.0.1:8000", "127.0.0.2:8000"):
        code = code.replace(shown, server.http)
    return code.replace("127.0.0.1:8001", server.grpc)


@pytest.mark.parametrize(
    ("code", "printed"),
    list(zip(PYTHON, PRINTED, strict=True)),
)
def test_python_of_the_page(server: RunningServer, tmp_path: Path, code: str, printed: str) -> None:
    assert run([sys.executable, "-c", placed(server, code)], tmp_path).strip() == printed


def test_commands_of_the_page(server: RunningServer, tmp_path: Path) -> None:
    rank, score = COMMANDS.strip().splitlines()
    command = f"{sys.executable} -m anabranch_server"
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"user": {"age": 20}, "candidates": ITEMS}))

    said = run(["sh", "-c", placed(server, rank).replace("anabranch", command, 1)], tmp_path)

    assert json.loads(said)["ids"] == [12, 11, 13]
    assert "explain" in json.loads(said)

    request.write_text(json.dumps({"inputs": []}))
    refused = subprocess.run(
        ["sh", "-c", placed(server, score).replace("anabranch", command, 1)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (1, "")
