"""Servers started as users start them, and stopped, crowded, misconfigured."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from anabranch_testing.graphs import scale_model
from anabranch_testing.servers import RunningServer, started_server

REQUEST = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
).encode()
SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    scale_model(folder / "scale" / "1")
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with started_server(repository, tmp_path_factory.mktemp("s"), "--settle-s", "0") as running:
        yield running


def get(address: str, path: str) -> tuple[int, bytes]:
    """Return status and body of a GET."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def score(address: str, model: str = "scale") -> tuple[int, dict[str, object]]:
    """Return status and body of a scoring request on a connection of its own."""
    request = urllib.request.Request(
        f"http://{address}/v2/models/{model}/infer",
        REQUEST,
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def events(server: RunningServer) -> list[dict[str, object]]:
    """Return the log, line by line."""
    return [json.loads(line) for line in server.log.read_text().splitlines()]


def named(server: RunningServer, event: str) -> list[dict[str, object]]:
    """Return the log lines of one event."""
    return [line for line in events(server) if line["event"] == event]


def scrape(address: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return a scrape: (sample, labels) -> value."""
    text = get(address, "/metrics")[1].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# --- a running server -------------------------------------------------------------------------


def test_the_ready_file_says_where_everything_is(server: RunningServer) -> None:
    ready = server.ready
    assert set(ready) == {
        "pid", "supervisor", "loader", "http", "grpc", "metrics", "admin", "admin_grpc",
        "workers", "models", "seconds", "delta_loader",
    }  # fmt: skip
    assert ready["pid"] == server.process.pid
    assert ready["models"] == {"scale": "1"}
    (worker,) = server.workers
    supervisor = int(str(ready["supervisor"]))
    assert len({ready["pid"], supervisor, worker}) == 3
    for pid in (supervisor, worker):
        assert os.getpgid(pid) == pid  # Ctrl-C at a terminal reaches the launcher alone
        assert os.getsid(pid) == os.getsid(server.process.pid)
    assert isinstance(ready["seconds"], float)
    assert 0 < ready["seconds"] < 60
    copy = server.log.parent / "run" / "ready.json"
    assert json.loads(copy.read_bytes()) == ready
    for folder in ("run", "state", "cache"):
        assert (server.log.parent / folder).stat().st_mode & 0o777 == 0o700


def test_every_door_answers(server: RunningServer) -> None:
    status, answer = score(server.http)
    assert status == 200
    assert answer["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [4321.0]}
    ]
    for address, path in (
        (server.http, "/v2/health/ready"),
        (server.http, "/docs"),
        (server.metrics, "/health/live"),
        (server.metrics, "/health/ready"),
        (server.admin, "/admin/v1/models"),
        (server.admin, "/"),
    ):
        assert get(address, path)[0] == 200, path
    with grpc.insecure_channel(server.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answered = health.Check(health_pb2.HealthCheckRequest(), timeout=20)
    assert answered.status == health_pb2.HealthCheckResponse.SERVING


def test_requests_are_counted_at_the_metrics_port(server: RunningServer) -> None:
    labels = {"model": "scale", "version": "1", "protocol": "oip_http", "code": "OK"}
    counter = ("anabranch_requests_total", frozenset(labels.items()))
    unknown = {"model": "_unknown", "version": "", "protocol": "oip_http", "code": "NOT_FOUND"}
    before = scrape(server.metrics)

    score(server.http)
    assert score(server.http, "nobody")[0] == 404

    after = scrape(server.metrics)
    assert after[counter] == before.get(counter, 0) + 1
    assert after[("anabranch_requests_total", frozenset(unknown.items()))] >= 1
    assert after[("anabranch_model_ready", frozenset({("model", "scale")}))] == 1
    assert ("anabranch_connections", frozenset({("protocol", "oip_http")})) in after


def test_the_admin_port_shows_the_settings_and_the_worker(server: RunningServer) -> None:
    config = json.loads(get(server.admin, "/admin/v1/config")[1])
    assert config["host"] == "127.0.0.1"
    assert config["limits"]["max_tensors"] == 1024
    (worker,) = json.loads(get(server.admin, "/admin/v1/workers")[1])["workers"]
    assert [worker["pid"]] == server.workers
    assert worker["state"] == "serving"
    assert worker["snapshots"] == {"scale": "1"}


def test_the_log_is_json_without_paths(server: RunningServer) -> None:
    (ready,) = named(server, "ready")
    assert ready["http"] == server.http
    (load,) = named(server, "reload")
    assert (load["model"], load["version"], load["result"]) == ("scale", 1, "ok")
    assert str(server.log.parent) not in server.log.read_text()


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_second_server_on_a_port_is_an_error(
    server: RunningServer, repository: Path, tmp_path: Path, door: str
) -> None:
    port = str(server.ready[door]).rpartition(":")[2]
    others = [f"--{name}-port=0" for name in ("http", "grpc", "metrics", "admin") if name != door]
    done = subprocess.run(
        [
            sys.executable, "-m", "anabranch_server", "serve", str(repository),
            "--host", "127.0.0.1", f"--{door}-port", port, *others,
            "--run-dir", str(tmp_path / "run"), "--state-dir", str(tmp_path / "state"),
            "--cache-dir", str(tmp_path / "cache"),
        ],
        capture_output=True, text=True, timeout=60, check=False, env=SURROUNDINGS,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert done.stderr.count("\n") == 1
    assert score(server.http)[0] == 200


def test_a_second_server_in_a_run_folder_is_an_error(
    server: RunningServer, repository: Path, tmp_path: Path
) -> None:
    run_dir = server.log.parent / "run"
    ready = (run_dir / "ready.json").read_bytes()
    command = [sys.executable, "-m", "anabranch_server", "serve", str(repository)]
    for port in ("http", "grpc", "metrics", "admin", "admin-grpc"):
        command += [f"--{port}-port", "0"]
    command += ["--host", "127.0.0.1", "--run-dir", str(run_dir)]
    command += ["--state-dir", str(tmp_path / "state"), "--cache-dir", str(tmp_path / "cache")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "choose another with --run-dir" in done.stderr
    assert (run_dir / "ready.json").read_bytes() == ready


def test_score_and_status_talk_to_it(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(REQUEST)
    environ = {
        **SURROUNDINGS,
        "ANABRANCH_URL": f"http://{server.http}",
        "ANABRANCH_ADMIN_URL": f"http://{server.admin}",
    }

    def run(*words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "anabranch_server", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environ, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    assert json.loads(run("score", str(file), "--json"))["outputs"][0]["data"] == [4321.0]
    chosen = run("score", str(file), "--model", "scale", "--version", "1")
    assert json.loads(chosen)["model_version"] == "1"
    assert "HTTP 404" in run("score", str(file), "--model", "nobody", code=1)
    (model,) = json.loads(run("status", "--json"))["models"]
    assert (model["name"], model["state"]) == ("scale", "READY")
    assert "scale" in run("status")
    assert "scale" in run("status", "scale")
    assert "HTTP 404" in run("status", "nobody", code=1)
    misled = run("status", "--admin", f"http://{server.http}", code=1)
    assert f"http://{server.http} is not the admin port: no such route" in misled


# --- starting and stopping --------------------------------------------------------------------


def test_an_idle_server_stops_at_once_with_code_0(repository: Path, tmp_path: Path) -> None:
    with started_server(repository, tmp_path, "--settle-s", "0", "--drain-s", "60") as server:
        begun_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun_s < 20
        told = [(line["worker"], line["event"]) for line in events(server)]
        last = [(who, event) for who, event in told if event in ("signal", "draining", "stopped")]
        assert last[0] == ("launcher", "signal")
        assert sorted(map(str, (who for who, event in last if event == "stopped"))) == [
            "0", "launcher", "supervisor",
        ]  # fmt: skip
        assert last[-2:] == [("supervisor", "stopped"), ("launcher", "stopped")]
        assert not (tmp_path / "ready.json").exists()
        assert not (tmp_path / "run" / "ready.json").exists()


def test_ready_is_off_at_once_while_answers_go_on(repository: Path, tmp_path: Path) -> None:
    with started_server(repository, tmp_path, "--settle-s", "0", "--drain-s", "2") as server:
        host, port = server.http.split(":")
        kept = socket.create_connection((host, int(port)))
        with kept:
            server.process.send_signal(signal.SIGINT)
            while get(server.metrics, "/health/ready")[0] == 200:
                time.sleep(0.01)
            status, body = get(server.http, "/v2/health/ready")
            assert (status, json.loads(body)) == (503, {"error": "the server is draining"})
            assert get(server.metrics, "/health/live")[0] == 200
            assert score(server.http)[0] == 200
            assert server.process.wait(30) == 0


def test_no_request_is_lost_while_draining_under_load(repository: Path, tmp_path: Path) -> None:
    answers: list[int] = []
    refused_s: list[float] = []
    stop = threading.Event()

    def ask(address: str) -> None:
        while not stop.is_set():
            try:
                answers.append(score(address)[0])
            except OSError:
                refused_s.append(time.monotonic())
                return

    with started_server(repository, tmp_path, "--settle-s", "0", "--drain-s", "1") as server:
        threads = [threading.Thread(target=ask, args=(server.http,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(answers) < 50:
            time.sleep(0.01)
        signalled_s = time.monotonic()
        code = server.stop()
        stop.set()
        for thread in threads:
            thread.join()

    assert code == 0
    assert set(answers) == {200}
    # Callers keep coming, so the whole drain time is used before the port closes.
    assert min(refused_s, default=signalled_s + 1) - signalled_s >= 0.9


def test_a_second_signal_ends_it_at_once(repository: Path, tmp_path: Path) -> None:
    with started_server(repository, tmp_path, "--settle-s", "0", "--drain-s", "60") as server:
        host, port = server.http.split(":")
        with socket.create_connection((host, int(port))):
            server.process.send_signal(signal.SIGTERM)
            while not named(server, "draining"):
                time.sleep(0.01)
            while server.process.poll() is None:  # those that come together are one
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.05)
            assert server.process.returncode == 1


@contextmanager
def unready_server(repository: Path, scratch: Path, *options: str) -> Iterator[dict[str, str]]:
    """Start a server that will not become ready; yields its addresses once it answers."""
    with ExitStack() as probes:
        held = {name: probes.enter_context(socket.socket()) for name in ("http", "metrics")}
        for probe in held.values():
            probe.bind(("127.0.0.1", 0))
        ports = {name: probe.getsockname()[1] for name, probe in held.items()}
    command = [
        sys.executable, "-m", "anabranch_server", "serve", str(repository),
        "--host", "127.0.0.1", "--grpc-port", "0", "--admin-port", "0", "--admin-grpc-port", "0",
        "--drain-s", "0",
        *(f"--{name}-port={port}" for name, port in ports.items()),
        *(f"--{name}-dir={scratch / name}" for name in ("run", "state", "cache")), *options,
    ]  # fmt: skip
    with (
        (scratch / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, env=SURROUNDINGS) as process,
    ):
        try:
            addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
            end_s = time.monotonic() + 60
            while True:
                try:
                    get(addresses["http"], "/v2/health/live")
                    break
                except OSError:
                    assert time.monotonic() < end_s
                    time.sleep(0.02)
            yield addresses
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(30)
        assert code == 0


def test_health_answers_while_models_wait_to_be_complete(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    scale_model(repository / "scale" / "1")
    with unready_server(repository, tmp_path, "--settle-s", "600") as at:
        log = tmp_path / "server.log"
        while '"event":"settling"' not in log.read_text():
            time.sleep(0.02)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (settling,) = (line for line in lines if line["event"] == "settling")
        wanted = "waiting until the files of model scale have lain still for 600 s"
        assert (settling["msg"], settling["models"]) == (wanted, ["scale"])
        status, body = get(at["http"], "/v2/health/ready")
        assert (status, json.loads(body)) == (503, {"error": "the server is starting"})
        assert get(at["http"], "/v2/health/live")[0] == 200
        assert score(at["http"])[0] in (404, 503)  # not looked for yet, or not loaded yet
        assert not (tmp_path / "run" / "ready.json").exists()


def test_a_required_model_without_a_good_version_keeps_the_server_up_and_unready(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "repository"
    scale_model(repository / "good" / "1")
    (repository / "bad" / "1").mkdir(parents=True)
    with unready_server(repository, tmp_path, "--settle-s", "0") as at:
        log = tmp_path / "server.log"
        while '"event":"not_ready"' not in log.read_text():
            time.sleep(0.02)
        status, body = get(at["metrics"], "/health/ready")
        wanted = {"error": "required models that cannot answer: bad (no version is loaded)"}
        assert (status, json.loads(body)) == (503, wanted)
        assert score(at["http"], "good")[0] == 200
        assert score(at["http"], "bad")[0] == 503
        assert not (tmp_path / "run" / "ready.json").exists()


# --- repositories -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Serve a good model with a broken newest version, and a broken one that is not required."""
    repository = tmp_path_factory.mktemp("mixed")
    for name in ("scale", "other"):
        scale_model(repository / name / "1")
    broken = repository / "scale" / "2"
    broken.mkdir()
    (broken / "model.onnx").write_bytes(b"\0" * 100)
    (repository / "bad" / "1").mkdir(parents=True)
    (repository / "bad" / "serving.yaml").write_text("required: false\n")
    absent = repository / "labelled"
    scale_model(absent / "1")
    (absent / "serving.yaml").write_text(
        "{required: false, labels: {stable: 42}, traffic: {default: stable}}\n"
    )
    options = ("--settle-s", "0", "--models", "scale,bad,labelled")
    with started_server(repository, tmp_path_factory.mktemp("s"), *options) as running:
        yield running


def test_a_broken_version_makes_room_for_an_older_one(mixed: RunningServer) -> None:
    assert mixed.ready["models"] == {"scale": "1"}
    assert score(mixed.http)[0] == 200
    model = json.loads(get(mixed.admin, "/admin/v1/models/scale")[1])
    assert model["state"] == "READY"
    assert model["last_error"]["version"] == 2
    failed = [line for line in named(mixed, "reload") if line["result"] == "failed"]
    reasons = {(line["model"], line["version"]): line["reason"] for line in failed}
    assert reasons[("scale", 2)] == model["last_error"]["reason"]
    # Nothing was damaged or out of reach: without a manifest there is nothing to compare with.
    assert reasons == {("scale", 2): "invalid", ("bad", 1): "invalid", ("labelled", 42): "invalid"}


def test_a_default_label_on_a_version_that_is_not_there_is_named(mixed: RunningServer) -> None:
    said = "default label 'stable' names version 42, which is not loaded; loaded: 1"
    assert score(mixed.http, "labelled") == (503, {"error": f"model 'labelled': {said}"})
    assert get(mixed.http, "/v2/models/labelled/versions/1")[0] == 200


def test_a_chosen_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    scale_model(tmp_path / "repository" / "scale" / "1")
    options = ("--settle-s", "0", "--models", "scale,nope")
    with unready_server(tmp_path / "repository", tmp_path, *options) as at:
        log = tmp_path / "server.log"
        while '"event":"not_ready"' not in log.read_text():
            time.sleep(0.02)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        (failed,) = [line for line in lines if line.get("result") == "failed"]
        assert failed["msg"] == "model nope: the repository has no such model"
        assert (failed["version"], failed["reason"]) == (None, "invalid")
        assert score(at["http"], "scale")[0] == 200


def test_a_model_that_is_not_required_never_holds_readiness_back(mixed: RunningServer) -> None:
    assert get(mixed.metrics, "/health/ready")[0] == 200
    assert score(mixed.http, "bad")[0] == 503


def test_only_chosen_models_are_served(mixed: RunningServer) -> None:
    assert score(mixed.http, "other")[0] == 404


def test_an_empty_repository_is_ready_only_when_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    with started_server(tmp_path / "repository", tmp_path, "--allow-empty") as server:
        assert server.ready["models"] == {}
        assert get(server.http, "/v2/health/ready")[0] == 200


def test_a_settings_file_reaches_the_server(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "anabranch.yaml"
    file.write_text("limits: {max_rows: 1}\nlog_format: text\nswitch: {orphan_s: 60}\n")
    options = ("--settle-s", "0", "--config", str(file))
    with started_server(repository, tmp_path, *options) as server:
        config = json.loads(get(server.admin, "/admin/v1/config")[1])
        assert config["limits"]["max_rows"] == 1
        log = server.log.read_text()
        assert "switch.orphan_s has no effect in this release" in log
        assert "ready: HTTP on" in log


def test_access_lines_name_every_request_but_no_values(repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "anabranch.yaml"
    file.write_text("access_log: true\n")
    options = ("--settle-s", "0", "--config", str(file))
    with started_server(repository, tmp_path, *options) as server:
        score(server.http)
        score(server.http, "nobody")
        get(server.http, "/v2/health/ready")
        while len(named(server, "request")) < 2:
            time.sleep(0.01)
        good, bad = named(server, "request")
    assert set(good) >= {
        "request_id", "protocol", "model", "version", "delta", "code", "rows", "bytes_in",
        "bytes_out", "duration_ms",
    }  # fmt: skip
    assert (good["protocol"], good["model"], good["code"]) == ("oip_http", "scale", "OK")
    assert (good["version"], good["delta"], good["rows"]) == (1, 0, 1)
    assert good["bytes_in"] == len(REQUEST)
    assert (bad["model"], bad["code"]) == ("nobody", "NOT_FOUND")
    assert good["request_id"] != bad["request_id"]


def test_two_onnx_runtimes_end_the_start_with_the_remedy(repository: Path, tmp_path: Path) -> None:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        info = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    command = [sys.executable, "-m", "anabranch_server"]
    environ = {**SURROUNDINGS, "PYTHONPATH": str(tmp_path)}

    serve = subprocess.run(
        [*command, "serve", str(repository), "--http-port", "0"],
        capture_output=True, text=True, timeout=60, env=environ, check=False,
    )  # fmt: skip
    doctor = subprocess.run(
        [*command, "doctor", "--json"],
        capture_output=True, text=True, timeout=60, env=environ, check=False,
    )  # fmt: skip

    assert serve.returncode == doctor.returncode == 1
    assert "both onnxruntime and onnxruntime-gpu are installed" in serve.stderr
    assert "uninstall both" in serve.stderr
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert checks["onnxruntime"]["status"] == "failure"
    assert "uninstall both" in checks["onnxruntime"]["remedy"]
