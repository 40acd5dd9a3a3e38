"""Starting the processes of a server: by exec, with named descriptors and nothing else."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from anabranch_server.processes.boot import Boot, write_boot

__all__ = ["Child", "spawn"]


@dataclass(frozen=True, slots=True)
class Child:
    """A started process; whoever started it reaps it and closes the pidfd.

    Attributes:
        pid: its process, and its process group.
        pidfd: readable when it has ended.
    """

    pid: int
    pidfd: int


def spawn(module: str, boot: Boot, descriptors: Mapping[str, int]) -> Child:
    """Start `python -m module N` with a boot document behind descriptor N.

    It runs in a process group of its own, so that Ctrl-C on a terminal reaches the launcher alone,
    and in the same session, since scheduling priorities only count within one.

    Args:
        module: what to run; found as this process finds its own modules, never in the working
            folder.
        boot: what it is told; its `descriptors` are filled in here.
        descriptors: what it inherits, by name; they stay the caller's and may be closed afterwards.

    Raises:
        OSError: the system has no room for another process.
    """
    document = write_boot(msgspec.structs.replace(boot, descriptors=dict(descriptors)))
    try:
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(document)],
            stdin=subprocess.DEVNULL,
            pass_fds=(document, *descriptors.values()),
            process_group=0,
        )
    finally:
        os.close(document)
    try:
        pidfd = os.pidfd_open(started.pid)
    except OSError:
        started.kill()
        started.wait()
        raise
    started.returncode = 0  # reaped by whoever has the pidfd, not by this object
    return Child(started.pid, pidfd)
