import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

import pytest

from anabranch_server import demo_server
from anabranch_server.demo_requests import demo_data
from anabranch_testing.child_processes import mortal
from anabranch_wire.errors import Unavailable

COMMAND = [sys.executable, "-m", "anabranch_server", "demo"]


def environment(tmp_path: Path) -> dict[str, str]:
    # Settings of the surroundings are not the demo's.
    return {**os.environ, "ANABRANCH_HTTP_PORT": "1", "HOME": str(tmp_path), "NO_COLOR": "1"}


def notes_of_others_aside(said: str) -> str:
    """What was said, but for the line that other servers on this machine bring about."""
    return "".join(line for line in said.splitlines(True) if "others have port" not in line)


@contextmanager
def held(port: int) -> Iterator[None]:
    """The port, by a listener: from when whoever has it now has gone."""
    end_s = time.monotonic() + 60.0
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind(("127.0.0.1", port))
                listener.listen()
            except OSError:
                assert time.monotonic() < end_s, f"others keep port {port}"
                time.sleep(0.05)
            else:
                break
        yield


def test_the_demo_ranks_and_exits_where_nobody_watches(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(tmp_path),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert notes_of_others_aside(done.stderr) == ""
    assert "API docs" in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.split("\n"))
    assert "scores as recorded at training" in done.stdout
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"


def test_the_demo_keeps_serving_until_told(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [*COMMAND, "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    with mortal(started) as demo:
        assert demo.stdout
        assert demo.stderr
        try:
            assert "anabranch: serving until Ctrl-C\n" in iter(demo.stderr.readline, "")
        finally:
            demo.send_signal(signal.SIGINT)
        text = demo.stdout.read()
        assert demo.wait(30) == 0
    assert "API docs" in text


def test_ctrl_c_ends_a_demo_that_was_started_with_it_ignored(tmp_path: Path) -> None:
    # As `anabranch demo --keep &` in a script is.
    started = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMAND, "--keep"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    with mortal(started) as demo:
        assert demo.stderr
        assert "anabranch: serving until Ctrl-C\n" in iter(demo.stderr.readline, "")
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0


def test_the_demo_says_which_default_ports_others_have(tmp_path: Path) -> None:
    with held(8000):
        done = subprocess.run(
            [*COMMAND, "--once"],
            capture_output=True,
            text=True,
            timeout=100,
            env=environment(tmp_path),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "anabranch: others have port 8000" in done.stderr
    assert "http://127.0.0.1:8000/" not in done.stdout


def test_the_demo_starts_again_where_others_take_a_port_while_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[set[int]] = []
    look = demo_server._taken

    def first_look_is_too_early(ports: Collection[int]) -> set[int]:
        looks.append(look(ports) if looks else set())
        return looks[-1]

    monkeypatch.setattr(demo_server, "_taken", first_look_is_too_early)
    with (
        held(8000),
        resources.as_file(demo_data() / "models") as repository,
        demo_server.demo_server(repository) as server,
    ):
        assert 8000 in server.taken
        assert not server.ready.http.endswith(":8000")
        assert server.process.poll() is None
    assert len(looks) == 2


def test_a_server_that_fails_for_another_reason_is_not_started_again(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match="the server ended with exit code 2"),
        demo_server.demo_server(tmp_path / "missing"),
    ):
        pass
