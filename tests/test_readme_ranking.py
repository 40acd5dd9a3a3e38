"""What the README says of ranking is done as it stands, against the model of the demo."""

import json
import shutil
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from anabranch_server.demo_requests import MODEL, demo_data
from anabranch_testing.pages import at, blocks, run
from anabranch_testing.servers import RunningServer, started_server

(CURL,) = (code for code in blocks("README.md", "") if code.startswith("curl") and MODEL in code)
(PYTHON,) = (code for code in blocks("README.md", "python") if MODEL in code)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    scratch = tmp_path_factory.mktemp("readme_ranking")
    with (
        resources.as_file(demo_data() / "models") as models,
        started_server(models, scratch) as started,
    ):
        yield started


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_ranks_as_shown(server: RunningServer, tmp_path: Path) -> None:
    answer = json.loads(run(["bash", "-c", at(server, CURL)], tmp_path))

    assert answer["ids"] == [31, 75, 60]
    assert answer["positions"] == [1, 3, 2]
    assert answer["scores"] == sorted(answer["scores"], reverse=True)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_client_ranks_as_shown(server: RunningServer, tmp_path: Path, protocol: str) -> None:
    code = at(server, PYTHON)
    if protocol == "grpc":
        code = code.replace(f"http://{server.http}", f"grpc://{server.grpc}")

    printed = run([sys.executable, "-c", code], tmp_path)

    assert [line.split()[0] for line in printed.splitlines()] == ["31", "75", "60"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_message_is_the_one_shown(server: RunningServer, tmp_path: Path) -> None:
    wrong = CURL.replace('"affinity": [0.0, 1.0, ', '"affinity": [0.0, "1", ')
    assert wrong != CURL

    answer = json.loads(run(["bash", "-c", at(server, wrong)], tmp_path))

    ((bad,),) = (answer["bad_candidates"],)
    assert bad["position"] == 1
    message = bad["error"]
    page = (Path(__file__).parents[1] / "README.md").read_text().replace("\n", " ")
    assert f"`{message}`" in page
