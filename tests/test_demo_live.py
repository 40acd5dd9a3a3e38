"""`make demo-live` in a short form: real rows, a really started server, and deltas into it."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch_testing.child_processes import mortal

EXAMPLES = Path(__file__).parents[1] / "examples"
COMMAND = [sys.executable, "-m", "open_bandit.live", "--pace-s", "0"]


@pytest.mark.slow
def test_hours_are_learned_published_and_answered(tmp_path: Path) -> None:
    picture = tmp_path / "folder" / "live.png"

    done = subprocess.run(
        [*COMMAND, "--hours", "3", "--picture", str(picture)],
        cwd=EXAMPLES, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    points = re.findall(r"^29 Nov .* (\d+(?:\+\d+)?) +\d+\.\d\d$", done.stdout, re.MULTILINE)
    assert points[:4] == ["1+1", "1+2", "1+3", "2"]
    assert re.search(r"^[\d,]+ rankings of 80 items meanwhile, 0 failed$", done.stdout, re.M)
    assert "newest impression are those of the trainer" in done.stdout
    assert "0 wrong dates, 0 answers of an earlier delta" in done.stdout
    assert "newest impression in the model: 29 November 2019, 02:59" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_it_ends_by_ctrl_c_without_a_trace(tmp_path: Path) -> None:
    command = [*COMMAND, "--picture", str(tmp_path / "live.png")]
    started = subprocess.Popen(
        command, cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with mortal(started) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "1+1" in line:
                break
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 0
    assert said.splitlines()[-1] == "stopped"
    assert "Traceback" not in said
