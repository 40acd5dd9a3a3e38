"""The page about a first ranking model is run as it stands, from training to the answer."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_testing.pages import at, blocks, run
from anabranch_testing.servers import RunningServer, started_server

PAGE = "docs/first_ranking.md"
(SHOP,) = blocks(PAGE, "python")
(MEANING,) = blocks(PAGE, "yaml")
PUBLISH, SERVE, CURL = blocks(PAGE, "")

pytest.importorskip("pyarrow")
pytest.importorskip("xxhash")


def commands(code: str) -> str:
    """Return shell code that runs this installation."""
    server = f'anabranch() {{ {sys.executable} -m anabranch_server "$@"; }}'
    return f'set -e\n{server}\npython() {{ {sys.executable} "$@"; }}\n{code}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page was followed up to its third step."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "version").mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "version" / "model.yaml").write_text(MEANING)
    printed = run(["bash", "-c", commands(PUBLISH)], folder)
    assert "2 golden requests give the same" in printed
    assert "published shop version 1 at models/shop/1 " in printed
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    assert SERVE.startswith("anabranch serve models ")
    with started_server(folder / "models", folder) as started:
        yield started


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_asks_as_shown(folder: Path, server: RunningServer, tmp_path: Path) -> None:
    answer = json.loads(run(["bash", "-c", at(server, CURL)], tmp_path))
    golden = json.loads((folder / "version" / "golden" / "0000.json").read_text())["scores"]

    best = sorted(
        range(3), key=lambda row: golden["ctr"][row] * golden["cvr"][row] ** 0.5, reverse=True
    )[:2]
    assert answer["positions"] == best
    assert answer["ids"] == [row + 1 for row in best]
    for head in ("ctr", "cvr"):
        expected = [golden[head][row] for row in best]
        assert answer["outputs"][head] == pytest.approx(expected, abs=1e-6)
    assert [one["position"] for one in answer["bad_candidates"]] == [3]
    assert answer["explain"]["snapshot"]["step"] == 1200


def test_another_seed_is_found_as_the_page_says(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "version", tmp_path / "version")
    assert MEANING.count("seed: 7") == 1
    (tmp_path / "version" / "model.yaml").write_text(MEANING.replace("seed: 7", "seed: 8"))

    said = run(["bash", "-c", commands("anabranch golden check version 2>&1 || true")], tmp_path)

    (line,) = said.splitlines()
    assert f"`{line.removeprefix('anabranch: ')}`" in (Path(__file__).parents[1] / PAGE).read_text()
