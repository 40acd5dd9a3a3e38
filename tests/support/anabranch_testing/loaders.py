"""Real loader processes, started as a launcher starts them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from anabranch_server.processes.boot import Boot, write_boot
from anabranch_server.processes.channel import pair
from anabranch_server.settings import read_settings, serve_config

__all__ = ["started_loader"]

_IMPATIENT: Final = (
    "import sys; from anabranch_server.processes.boot import read_boot; "
    "from anabranch_server.loader.process import run_loader; "
    "run_loader(read_boot(sys.argv), {patience_s})"
)


def started_loader(cache: Path, patience_s: float | None = None) -> tuple[int, int, int]:
    """Start a loader and return its pid, a channel to it, and its pidfd; all are the caller's.

    Args:
        cache: its cache folder.
        patience_s: how long it waits for work; None is what it does by itself.
    """
    ours, theirs = pair()
    boot = Boot(
        role="loader",
        launch="0",
        launcher_pid=os.getpid(),
        launcher_started=0.0,
        config=serve_config(
            read_settings({"cache_dir": cache}, {}, None), str(Path(__file__).parent), cores=2
        ),
        addresses={},
        descriptors={"supervisor": theirs.fileno()},
        run_dir="",
    )
    document = write_boot(boot)
    command = ["-m", "anabranch_server.loader"]
    if patience_s is not None:
        command = ["-c", _IMPATIENT.format(patience_s=patience_s)]
    started = subprocess.Popen(
        [sys.executable, "-P", *command, str(document)],
        pass_fds=(document, theirs.fileno()),
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    os.close(document)
    theirs.close()
    started.returncode = 0  # reaped by the caller
    return started.pid, ours.detach(), os.pidfd_open(started.pid)
