"""The page about models with tables of their own is run as it stands, from export to answers."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.feature_forms import key_names
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_testing.pages import at, blocks, run
from anabranch_testing.servers import RunningServer, started_server

PAGE = "docs/embedding_models.md"
EXPORT, PUBLISH, TRITON, UPDATE = blocks(PAGE, "python")
MEANING, SEVERAL = blocks(PAGE, "yaml")
SERVE, LOOK, CURL = blocks(PAGE, "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page was followed up to its third step."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "models").mkdir()
    (folder / "model.yaml").write_text(MEANING)
    run([sys.executable, "-c", EXPORT], folder)
    assert run([sys.executable, "-c", PUBLISH], folder).startswith("models/ctr/1 ")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    assert SERVE.startswith(".venv/bin/anabranch serve models ")
    with started_server(folder / "models", folder) as started:
        yield started


def expected() -> list[float]:
    """What the request of the page must give, by plain NumPy."""
    random = np.random.default_rng(1)
    users, items, tags = (
        random.standard_normal((count, dim), np.float32)
        for count, dim in ((1000, 8), (5000, 8), (100, 4))
    )
    bags = [(tags[3] + 0.5 * tags[4]) / 1.5, np.zeros(4), tags[7]]
    means = [
        np.concatenate([[0.5, row + 1], users[42], items[item], bag]).mean()
        for row, (item, bag) in enumerate(zip((10, 11, 4999), bags, strict=True))
    ]
    return [float(1 / (1 + np.exp(-mean))) for mean in means]


def test_tritonclient_asks_as_shown(server: RunningServer, tmp_path: Path) -> None:
    printed = run([sys.executable, "-c", at(server, TRITON)], tmp_path)

    scores = [score for (score,) in json.loads(printed)]
    assert scores == pytest.approx(expected(), abs=1e-6)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_asks_as_shown(server: RunningServer, tmp_path: Path) -> None:
    answer = json.loads(run(["bash", "-c", at(server, CURL)], tmp_path))

    assert answer["outputs"][0]["data"] == pytest.approx(expected(), abs=1e-6)


def test_what_it_says_of_several_tables_can_be_read() -> None:
    read = read_yaml(SEVERAL.encode(), ModelMeaning, "model.yaml")
    assert key_names(read) == ("author.author_q", "author.author_r")


def test_the_version_and_its_rows_are_shown(folder: Path) -> None:
    inspect, rows = (
        line.replace(".venv/bin/anabranch", f"{sys.executable} -m anabranch_server")
        for line in LOOK.splitlines()
    )

    assert all(name in run(inspect.split(), folder) for name in ("users", "items", "tags"))
    assert len(run(rows.split(), folder).splitlines()) >= 2


def test_a_delta_is_published_as_shown(folder: Path, tmp_path: Path) -> None:
    version = Path("models/ctr/1")
    shutil.copytree(folder / version, tmp_path / version)

    assert run([sys.executable, "-c", UPDATE], tmp_path) == "1\n"

    delta = json.loads((tmp_path / version / "deltas/00000001/delta.json").read_bytes())
    (table,) = delta["tables"]
    assert (table["name"], table["upserts"], table["deletes"]) == ("items", 2, 1)
