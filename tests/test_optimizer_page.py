"""The page about the optimizer is followed as it stands, from an export to answers."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_client import Client
from anabranch_graph_opt.reporting.report import Report
from anabranch_testing.pages import blocks, run
from anabranch_testing.servers import started_server

PAGE = "docs/optimizer.md"
(EXPORT,) = blocks(PAGE, "python")
(MEANING,) = blocks(PAGE, "yaml")
(COMMANDS,) = blocks(PAGE, "")
PRINTED, DOCUMENT = blocks(PAGE, "text")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which the page was followed up to serving, and what commands printed."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "model.yaml").write_text(MEANING)
    run([sys.executable, "-c", EXPORT], folder)
    *steps, serve = COMMANDS.splitlines()
    assert serve.startswith(".venv/bin/anabranch serve models ")
    return folder, [run(command(step), folder) for step in steps]


def command(line: str) -> list[str]:
    program, *words = shlex.split(line)
    assert program == ".venv/bin/anabranch"
    return [sys.executable, "-m", "anabranch_server", *words]


def test_commands_print_what_the_page_shows(followed: tuple[Path, list[str]]) -> None:
    _, (optimized, verified) = followed

    assert optimized.startswith(PRINTED)
    assert "compared with the original on" in verified


def test_the_folder_is_served(followed: tuple[Path, list[str]], tmp_path: Path) -> None:
    folder, _ = followed
    items = np.random.default_rng(1).standard_normal((5000, 16)).astype(np.float32)
    item, price = np.array([[7], [4999], [-1]]), np.array([[0.5], [1], [2]], np.float32)

    with (
        started_server(folder / "models", tmp_path) as server,
        Client(f"http://{server.http}") as client,
    ):
        scores = client.score("ctr", {"item": item, "price": price}).outputs["score"]

    expected = items[item[:, 0]].sum(axis=1, keepdims=True) + price
    np.testing.assert_allclose(np.asarray(scores, np.float32), expected, rtol=0, atol=1e-5)


def test_the_document_has_the_keys_that_the_page_lists(
    followed: tuple[Path, list[str]],
) -> None:
    folder, _ = followed
    report = json.loads((folder / "models/ctr/1/report.json").read_bytes())

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(key for one in value.values() for key in keys(one))}
        return {key for one in value for key in keys(one)} if isinstance(value, list) else set()

    assert {part for part in DOCUMENT.split('"')[1::2]} == keys(report)
    assert set(report) == {field.name for field in msgspec.structs.fields(Report)}


def test_options_of_the_page_are_those_of_the_command() -> None:
    page = (Path(__file__).parents[1] / PAGE).read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "anabranch_server", "optimize", "--help"],
        capture_output=True, text=True, timeout=60, check=True, env={"COLUMNS": "120"},
    ).stdout  # fmt: skip

    for option in ("-o", "--config", "--min-table-bytes", "--keep-original", "--json"):
        assert f"| `{option}" in page
        assert option in shown
