import os
import signal
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "anabranch_server", "demo"]


def environment(tmp_path: Path) -> dict[str, str]:
    # Settings of the surroundings are not the demo's.
    return {**os.environ, "ANABRANCH_HTTP_PORT": "1", "HOME": str(tmp_path), "NO_COLOR": "1"}


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
    assert done.stderr == ""
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
            assert demo.stderr.readline() == "anabranch: serving until Ctrl-C\n"
        finally:
            demo.send_signal(signal.SIGINT)
        text = demo.stdout.read()
        assert demo.wait(30) == 0
    assert "API docs" in text
