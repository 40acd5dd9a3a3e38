import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

COMMAND = [sys.executable, "-m", "anabranch_server", "demo"]


def environment(tmp_path: Path) -> dict[str, str]:
    # Settings of the surroundings are not the demo's.
    return {**os.environ, "ANABRANCH_HTTP_PORT": "1", "HOME": str(tmp_path), "NO_COLOR": "1"}


def notes_of_others_aside(said: str) -> str:
    """What was said, but for the line that other servers on this machine bring about."""
    return "".join(line for line in said.splitlines(True) if "others have port" not in line)


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
    assert "scores as recorded at training" in done.stdout
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"


def test_the_demo_keeps_serving_until_told(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    ) as demo:
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
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMAND, "--keep"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    ) as demo:
        assert demo.stderr
        try:
            assert "anabranch: serving until Ctrl-C\n" in iter(demo.stderr.readline, "")
            demo.send_signal(signal.SIGINT)
            assert demo.wait(30) == 0
        finally:
            demo.terminate()


def test_the_demo_says_which_default_ports_others_have(tmp_path: Path) -> None:
    with closing(socket.socket()) as other:
        # If somebody has the port already, that is as good.
        with suppress(OSError):
            other.bind(("127.0.0.1", 8000))
            other.listen()
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
