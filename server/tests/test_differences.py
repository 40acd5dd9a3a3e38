"""Snapshots compared: by `anabranch diff`, and for the admin port by a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_server.describe.differences import (
    DifferenceView,
    TableDifferenceView,
    WeightDifferenceView,
)
from anabranch_server.differences import Comparer
from anabranch_testing.admin_ports import admin_ports
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.graphs import scale_model
from anabranch_wire.errors import Conflict, DeadlineExceeded, InvalidInput, NotFound

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
EXPECTED = DifferenceView([TableDifferenceView("t", 1, 1, 1, 5.0)], [])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 and 2 of a model with a table."""
    root = tmp_path_factory.mktemp("a repository")
    scale_model(root)
    for keys, values in (([5, -1], [[3, 4], [0, 1]]), ([9, 5], [[7, 7], [0, 0]])):
        rows = Rows(np.array(keys, np.int64), np.array(values, np.float32))
        publish_version(root / "m", root / "model.onnx", tables={"t": rows})
    return root / "m"


def anabranch(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "anabranch_server", "diff", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=SURROUNDINGS)


def without_weights(shown: dict[str, object]) -> dict[str, object]:
    return {**shown, "dense": []}


@pytest.mark.parametrize("form", ["paths", "urls", "model"])
def test_folders_are_compared_as_json(model: Path, form: str) -> None:
    places: list[object] = [model, "1", "2"]
    if form != "model":
        paths = [model / "1", model / "2"]
        places = [*paths] if form == "paths" else [path.as_uri() for path in paths]

    done = anabranch(*places, "--json")

    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert without_weights(shown) == asdict(EXPECTED)
    assert all(one["changed"] == 0 for one in shown["dense"])


def test_people_see_what_differs_and_how_much_does_not(model: Path) -> None:
    head, row, same = anabranch(model, "1", "2").stdout.splitlines()

    assert head.split() == ["table", "added", "changed", "removed", "norm", "of", "the", "change"]
    assert row.split() == ["t", "1", "1", "1", "5"]
    assert same.startswith("the same: 0 tables, ")
    assert anabranch(model, "1", "1").stdout.startswith("the same: 1 tables, ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["1"], 2, "expected A B or DIR/MODEL A B, found 1 arguments"),
        (["MODEL", "1", "x"], 2, "snapshot 'x': expected VERSION or VERSION+DELTA"),
        (["MODEL", "1", "7"], 1, "model 'm' has no version 7"),
        (["MODEL", "1", "1+3"], 1, "version 1 of model 'm' has no delta 1"),
        (["/none/m/1", "/none/m/2"], 1, "/none/m: no such folder"),
        (["nowhere://bucket/m/1", "nowhere://bucket/m/2"], 1, "nobody here reads such URLs"),
    ],
)
def test_what_cannot_be_compared_is_told(
    model: Path, words: list[str], code: int, said: str
) -> None:
    done = anabranch(*[str(model) if word == "MODEL" else word for word in words])

    assert done.returncode == code
    assert said in done.stderr


def test_a_server_is_asked(model: Path) -> None:
    administration = MemoryAdministration({"ctr": model_view("ctr", 42)})
    found = DifferenceView(EXPECTED.tables, [WeightDifferenceView("w", 3, 0.25)])
    administration.differences["ctr", "42", "42+17"] = found
    with admin_ports(administration) as ports:
        done = anabranch("ctr", "42", "42+17", "--admin", ports.url, "--json")
        only = anabranch("42", "42+17", "--admin", ports.url)
        missing = anabranch("ctr", "42", "43", "--admin", ports.url)

    assert json.loads(done.stdout) == asdict(found)
    assert [line.split()[0] for line in only.stdout.splitlines()[2:4]] == ["weight", "w"]
    assert (missing.returncode, "404" in missing.stderr) == (1, True)


def test_whose_server_lacks_files_is_told_to_name_the_url() -> None:
    administration = MemoryAdministration({"ctr": model_view("ctr", 42)})

    async def lacks(*_: object) -> DifferenceView:
        raise NotFound("model.onnx: no such file")

    administration.diff = lacks  # type: ignore[method-assign, assignment]  # a stand-in's
    with admin_ports(administration) as ports:
        done = anabranch("ctr", "41", "42", "--admin", ports.url)

    assert done.returncode == 1
    assert "model.onnx: no such file (HTTP 404): " in done.stderr
    assert "anabranch diff URL/ctr 41 42" in done.stderr


def test_a_process_compares_for_the_admin_port(model: Path) -> None:
    found = asyncio.run(Comparer().compare(model, "1", "2"))

    assert found.tables == EXPECTED.tables


def test_what_the_process_met_is_the_error_of_the_call(model: Path) -> None:
    async def ask() -> None:
        comparer = Comparer()
        with pytest.raises(NotFound, match="has no version 7"):
            await comparer.compare(model, "1", "7")
        with pytest.raises(InvalidInput, match="snapshot 'x'"):
            await comparer.compare(model, "1", "x")

    asyncio.run(ask())


def test_one_comparison_is_at_work_at_a_time(model: Path) -> None:
    async def ask() -> None:
        comparer = Comparer()
        first = asyncio.create_task(comparer.compare(model, "1", "2"))
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="another comparison is at work"):
            await comparer.compare(model, "1", "2")
        first.cancel()  # ends the process
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await comparer.compare(model, "1", "2")).tables == EXPECTED.tables

    asyncio.run(ask())


def test_a_comparison_has_a_limit(model: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="more than 0 s; use anabranch diff"):
        asyncio.run(Comparer(most_s=0.01).compare(model, "1", "2"))
