"""Looking at a machine before a server has to: what is there, what is missing, what to do.

A `failure` keeps the server from starting, a `warning` from doing its best.
"""

import os
import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from anabranch_model_store.memory import available_bytes
from anabranch_server.checks import Check
from anabranch_server.checks.machine import (
    check_cores,
    check_instructions,
    check_kernel,
    check_memory,
    check_open_files,
)
from anabranch_server.checks.memory import check_huge_pages, collapse
from anabranch_server.checks.processes import (
    check_autogroup,
    check_backlog,
    check_idle_priority,
    check_port_migration,
    check_port_sharing,
    check_process_handles,
    check_shared_memory,
)
from anabranch_server.checks.software import (
    check_folder,
    check_native_core,
    check_onnxruntime,
    check_python,
)
from anabranch_server.config import Folders
from anabranch_server.cores import usable_cores

__all__ = ["Report", "examine"]

_PROC: Final = Path("/proc")


class Report(msgspec.Struct, frozen=True):
    """All checks, in the order they were made."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether a server can run here."""
        return all(check.status != "failure" for check in self.checks)


def examine(folders: Folders) -> Report:
    """Look at this machine, user and environment.

    Args:
        folders: where the server would keep its files.
    """
    looks: tuple[Callable[[], Check], ...] = (
        lambda: check_python(sys.version_info[:3]),
        lambda: check_kernel(platform.system(), platform.release()),
        check_native_core,
        check_onnxruntime,
        lambda: check_instructions(_read("cpuinfo"), platform.machine()),
        lambda: check_cores(usable_cores(), len(os.sched_getaffinity(0))),
        lambda: check_memory(available_bytes()),
        lambda: check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        check_shared_memory,
        lambda: check_huge_pages(collapse),
        check_process_handles,
        check_idle_priority,
        lambda: check_autogroup(_read("sys/kernel/sched_autogroup_enabled")),
        check_port_sharing,
        lambda: check_port_migration(_read("sys/net/ipv4/tcp_migrate_req")),
        lambda: check_backlog(_read("sys/net/core/somaxconn")),
        lambda: check_folder("cache folder", folders.cache),
        lambda: check_folder("state folder", folders.state),
        lambda: check_folder("run folder", folders.run.parent),
    )
    return Report(tuple(look() for look in looks))


def _read(name: str) -> str:
    """Content of a file of the process file system; empty where it cannot be read."""
    try:
        return (_PROC / name).read_text(errors="replace")
    except OSError:
        return ""
