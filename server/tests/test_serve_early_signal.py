import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anabranch_testing.child_processes import mortal

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal (proc(5), `SigCgt`)."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
    assert mask is not None
    return bool(int(mask[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_still_starting_ends_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "anabranch_server", "serve", str(tmp_path)]
    for port in ("http", "grpc", "metrics", "admin", "admin-grpc"):
        command += [f"--{port}-port", "0"]
    command += ["--host", "127.0.0.1", "--run-dir", str(tmp_path / "run")]
    command += ["--state-dir", str(tmp_path / "state"), "--cache-dir", str(tmp_path / "cache")]
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=SURROUNDINGS)
    with mortal(started) as process:
        # Python itself catches SIGINT from the start; the command catches SIGTERM first.
        while not catches(process.pid, signal.SIGTERM):
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == 0


_AMID_A_CALLBACK = """
import os
import signal
import weakref

from anabranch_server.processes.leaving import leave_on_signals


class Module:
    pass


def end(_):
    os.kill(os.getpid(), signal.SIGTERM)


leave_on_signals()
module = Module()
watched = weakref.ref(module, end)
del module
raise SystemExit(3)
"""


def test_a_signal_amid_a_callback_of_pythons_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", _AMID_A_CALLBACK], timeout=60, env=SURROUNDINGS)

    assert done.returncode == 0
