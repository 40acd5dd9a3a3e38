"""`python -m openloop` as a person runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openloop.limit import measure_limit, null_server


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openloop", *arguments]
    folder = Path(__file__).resolve().parents[1]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def body(tmp_path: Path) -> str:
    path = tmp_path / "body"
    path.write_bytes(b"x" * 100)
    return str(path)


def test_it_prints_text_and_writes_json(body: str) -> None:
    with null_server() as address:
        done = run(
            f"http://{address}/v2?a=b", "--body", body, "--header", "A: b", "--rate", "200",
            "--seconds", "0.5", "--arrivals", "poisson", "--connections", "2", "--json", "-",
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["counts"]["outcomes"] == {"ok": result["counts"]["requests"]}
    assert "p99.9" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("http://127.0.0.1:1/",),
        ("ftp://127.0.0.1/", "--body", "BODY"),
        ("http://127.0.0.1:1/", "--body", "BODY", "--rate", "0"),
        ("http://127.0.0.1:1/", "--body", "BODY", "--header", "nothing"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], body: str) -> None:
    done = run(*(body if word == "BODY" else word for word in arguments))

    assert done.returncode == 2
    assert "expected" in done.stderr


def test_without_a_server_it_says_so(body: str) -> None:
    with null_server() as address:
        pass
    done = run(f"http://{address}/", "--body", body, "--timeout", "0.1")

    assert done.returncode == 1
    assert f"{address}: no connection" in done.stderr


def test_its_own_limit_can_be_measured() -> None:
    assert measure_limit(body_bytes=10, connections=4, requests=2000) > 0
