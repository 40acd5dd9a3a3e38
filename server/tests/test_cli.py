import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_server.cli import main
from anabranch_server.commands.serve import NOT_SETTINGS
from anabranch_server.settings import SETTINGS
from anabranch_testing.graphs import scale_model

CONTRACT = (
    "host http-port grpc-port grpc-engine metrics-port admin-host admin-port admin-grpc-port "
    "workers models poll-s settle-s drain-s cache-dir state-dir run-dir config log-format "
    "log-level allow-empty print-config ready-file"
)
CONTRACT_FLAGS = CONTRACT.split()
COMMANDS = [
    "serve",
    "demo",
    "rank",
    "score",
    "optimize",
    "publish",
    "verify",
    "status",
    "load",
    "unload",
    "reload",
    "rollback",
    "unpin",
    "doctor",
]
SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, for what ends before anything is opened."""
    for name in os.environ:
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def run_here(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["anabranch", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        done = subprocess.CompletedProcess[str](
            words, int(caught.value.code or 0), str(shown.out), str(shown.err)
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done

    return run_here


def run(*words: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, and check its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "anabranch_server", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**SURROUNDINGS, "COLUMNS": "100", "NO_COLOR": "1", **environ},
        check=False,
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done


def test_version_and_help_say_what_there_is() -> None:
    assert run("--version").stdout == "anabranch 0.1.0\n"
    help_text = run("-h").stdout
    for command in COMMANDS:
        assert command in help_text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, here: Run) -> None:
    assert "Usage" in here(command, "--help").stdout


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; sys.argv = ['anabranch', '--version']\n"
        "from anabranch_server.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'fastapi', 'uvicorn', 'grpc', 'onnx', 'onnxruntime', 'numpy', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_serve_takes_every_flag_of_the_contract() -> None:
    words = run("serve", "--help", COLUMNS="200").stdout.split()
    for flag in CONTRACT_FLAGS:
        assert f"--{flag}" in words, flag


def test_every_flag_is_a_setting() -> None:
    flags = {flag.replace("-", "_") for flag in CONTRACT_FLAGS} - NOT_SETTINGS
    names = {*SETTINGS, "poll_s"}
    assert flags <= names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve",), "name the repository"),
        (("serve", "/no/such/folder"), "expected a folder"),
        (("serve", ".", "--http-port", "99999"), "--http-port: "),
        (("serve", ".", "--http-port", "many"), "integer"),
        (("serve", ".", "--no-such-flag"), "--no-such-flag"),
        (("serve", ".", "--grpc-engine", "native"), "only the grpcio engine"),
        (("serve", ".", "--workers", "-1"), "--workers: "),
        (("serve", "gopher://bucket/models"), "nobody here reads such URLs"),
        (("serve", ".", "--config", "/no/such/file.yaml"), "No such file"),
        (("nonsense",), "nonsense"),
        (("demo", "--once", "--keep"), "exclude each other"),
    ],
)
def test_wrong_usage_is_exit_code_2(words: tuple[str, ...], said: str, here: Run) -> None:
    done = here(*words, code=2)
    assert said in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_unknown_environment_is_exit_code_2() -> None:
    done = run("serve", ".", code=2, ANABRANCH_HTTP_PRT="1")
    assert "did you mean ANABRANCH_HTTP_PORT?" in done.stderr


def test_print_config_prints_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.yaml"
    file.write_text("limits: {max_rows: 9}\n")
    printed = run("serve", "--print-config", "--http-port", "1", ANABRANCH_CONFIG=str(file)).stdout
    assert "http_port: 1\n" in printed
    assert "max_rows: 9\n" in printed

    file.write_text(printed)
    again = run("serve", "--print-config", "--config", str(file)).stdout
    assert again == printed


def test_print_config_masks_secrets_and_still_says_what_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.yaml"
    file.write_text("auth: {token_file: /secret/tokens}\n")
    done = run("serve", str(tmp_path), "--print-config", "--config", str(file), code=2)
    assert "token_file: '***'" in done.stdout
    assert "tokens are not supported yet" in done.stderr
    assert "secret" not in done.stdout


def test_doctor_reports_as_json_and_for_people() -> None:
    checks = json.loads(run("doctor", "--json").stdout)["checks"]
    assert {"name", "status", "found", "remedy"} == set(checks[0])
    assert {check["status"] for check in checks} <= {"ok", "warning", "failure"}
    shown = run("doctor").stdout
    for check in checks:
        assert check["name"] in shown


def test_publish_makes_the_next_version(tmp_path: Path) -> None:
    onnx = scale_model(tmp_path / "trained").path
    repository = tmp_path / "repository"
    repository.mkdir()

    first = json.loads(run("publish", str(repository / "ctr"), str(onnx), "--json").stdout)
    second = run("publish", str(repository / "ctr"), str(onnx), "--version", "7")

    assert (first["version"], first["sequence"]) == (1, 0)
    assert first["bytes"] == onnx.stat().st_size
    assert first["seconds"] >= 0
    assert "published ctr version 7" in second.stdout
    assert (repository / "ctr" / "7" / "manifest.json").is_file()


def test_publish_fails_with_code_1_and_a_reason(tmp_path: Path) -> None:
    onnx = scale_model(tmp_path / "trained").path
    (tmp_path / "repository").mkdir()
    model = str(tmp_path / "repository" / "ctr")
    run("publish", model, str(onnx), "--version", "7")

    assert (
        "version 7 of ctr is taken"
        in run("publish", model, str(onnx), "--version", "7", code=1).stderr
    )
    assert run("publish", model, str(tmp_path / "no.onnx"), code=1).stderr.startswith("anabranch: ")
    run("publish", model, str(onnx), "--version", "0", code=2)


def test_clients_say_when_nobody_answers(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text('{"inputs": []}')
    url = "http://127.0.0.1:9"
    assert "cannot be reached" in run("score", str(request), "--url", url, code=1).stderr
    said = run("status", code=1, ANABRANCH_ADMIN_URL=url).stderr
    assert "cannot be reached" in said
    assert "is a server running there" in said
    assert "expected http://" in run("status", "--admin", "ftp://x", code=2).stderr


def test_score_refuses_files_that_are_no_request(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    assert "No such file" in run("score", str(file), code=1).stderr
    file.write_text("{")
    assert "not JSON" in run("score", str(file), code=1).stderr
    file.write_text("[1]")
    assert "expected an object" in run("score", str(file), code=1).stderr
