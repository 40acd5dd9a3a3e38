"""`anabranch rank` and `anabranch score` against a started server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.spinning_models import write_spinning_model

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
RANKING = {
    "id": "req-7",
    "user": {"age": 20},
    "candidates": {"item_id": [5, 6, 7], "price": [1.0, 3.5, 2.0]},
}
SCORING = {
    "inputs": [
        {"name": name, "shape": [1, width], "datatype": datatype, "data": [0] * width}
        for name, width, datatype in [
            ("age", 1, "FP32"), ("spins", 1, "FP32"), ("item", 1, "INT64"), ("price", 1, "FP32"),
            ("shape", 2, "FP32"), ("tags", 4, "INT64"),
        ]
    ]
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_spinning_model(repository / "spin")
    options = ("--settle-s", "0", "--workers", "1")
    with started_server(repository, tmp_path_factory.mktemp("s"), *options) as running:
        yield running


def run(server: RunningServer, *words: str, sent: object, code: int = 0) -> tuple[str, str]:
    """Run a command with a request on standard input; return what it printed and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "anabranch_server", *words],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        timeout=120,
        env={**SURROUNDINGS, "ANABRANCH_URL": f"http://{server.http}"},
        check=False,
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def test_candidates_of_a_file_are_ranked(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(RANKING))

    printed, said = run(server, "rank", str(file), sent=None)

    answer = json.loads(printed)
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("spin", "1", "req-7")
    assert (answer["ids"], answer["scores"]) == ([6, 7, 5], [23.5, 22.0, 21.0])
    assert "\n" in printed.strip()
    assert said == ""


def test_options_count_before_the_file(server: RunningServer) -> None:
    named = {**RANKING, "model_name": "nobody", "model_version": "9", "top_k": 1}
    words = ("--model", "spin", "--version", "1", "--top-k", "2", "--explain", "--json")

    printed, _ = run(server, "rank", "-", *words, sent=named)

    answer = json.loads(printed)
    assert answer["ids"] == [6, 7]
    assert answer["explain"]["defaulted"] == ["spins", "shape", "tags"]
    assert printed.count("\n") == 1


def test_a_file_may_name_the_model_and_its_version(server: RunningServer) -> None:
    named = {**RANKING, "model_name": "spin", "model_version": "1"}
    assert json.loads(run(server, "rank", "-", sent=named)[0])["ids"] == [6, 7, 5]
    absent = {**named, "model_version": "canary"}
    assert "canary" in run(server, "rank", "-", sent=absent, code=1)[1]


def test_rows_are_scored_in_the_same_form(server: RunningServer) -> None:
    printed, _ = run(server, "score", "-", "--json", sent={**SCORING, "model_name": "spin"})
    assert json.loads(printed)["outputs"][0] == {
        "name": "ctr",
        "datatype": "FP32",
        "shape": [1, 1],
        "data": [0.0],
    }


@pytest.mark.parametrize("command", ["rank", "score"])
def test_what_the_server_refuses_is_said_and_ends_with_1(
    server: RunningServer, command: str
) -> None:
    sent = {**RANKING, **SCORING, "candidates": {"item_id": [1], "prize": [1]}}
    if command == "rank":
        del sent["inputs"]
    else:
        sent["inputs"] = []
    printed, said = run(server, command, "-", sent=sent, code=1)
    assert printed == ""
    assert said.startswith("anabranch: ")
    assert "HTTP 400" in said


@pytest.mark.parametrize("command", ["rank", "score"])
def test_wrong_usage_ends_with_2(server: RunningServer, command: str) -> None:
    wrong = run(server, command, "-", "--url", "ftp://x", sent=RANKING, code=2)[1]
    assert "expected http://" in wrong
    run(server, command, "-", "--nothing", sent=RANKING, code=2)


@pytest.mark.parametrize("command", ["rank", "score"])
@pytest.mark.parametrize("text", ["{", "[1]", '{"a": '])
def test_files_that_are_no_request_end_with_1(
    server: RunningServer, tmp_path: Path, command: str, text: str
) -> None:
    file = tmp_path / "request.json"
    file.write_text(text)
    assert str(file) in run(server, command, str(file), sent=None, code=1)[1]
    assert "No such file" in run(server, command, str(tmp_path / "no"), sent=None, code=1)[1]
