"""The processes of a started server, seen from outside: who they are and what they hold."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

__all__ = ["Resources", "Role", "ServerProcesses", "owned_ports", "resources_of", "wait_until"]

Role = Literal["launcher", "supervisor", "worker", "loader", "other"]

_STAND_INS: Final = b"anabranch_testing.processes."
_ROLES: Final[tuple[Role, ...]] = ("supervisor", "worker", "loader")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a process holds.

    Attributes:
        held_bytes: memory without pages of files, those that several processes share counted in
            parts. Pages of files are the kernel's to drop, and a process's part of a library grows
            whenever another one that maps it ends.
        threads: its threads.
        descriptors: its open descriptors.
    """

    held_bytes: int
    threads: int
    descriptors: int


class ServerProcesses:
    """Looks for the launcher's processes each time it is asked.

    Args:
        launcher: the process that was started.
    """

    def __init__(self, launcher: int) -> None:
        self.launcher = launcher

    def all(self) -> dict[int, Role]:
        """Return every process that lives, by id, the launcher's own first."""
        found: dict[int, Role] = {}
        parents = dict(_parents())
        if self.launcher in parents:
            found[self.launcher] = "launcher"
        for pid in parents:
            ancestor = parents.get(pid, 0)
            while ancestor not in (0, self.launcher):
                ancestor = parents.get(ancestor, 0)
            if ancestor == self.launcher:
                found[pid] = _role(pid)
        return found

    def of(self, role: Role) -> list[int]:
        """Return the processes of that role, the oldest first."""
        return sorted(pid for pid, one in self.all().items() if one == role)


def resources_of(pid: int) -> Resources | None:
    """Return what a process holds; None when it is gone."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        threads = len(os.listdir(f"/proc/{pid}/task"))
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    parts = [line.split() for line in rollup.splitlines()[1:]]
    kib = sum(int(part[1]) for part in parts if part[0] in ("Pss_Anon:", "Pss_Shmem:"))
    return Resources(kib * 1024, threads, descriptors)


def owned_ports(pid: int, server_port: int) -> set[int]:
    """Return the ports of the clients whose connections to `server_port` a process holds."""
    inodes = set()
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return {port for inode, port in _connections(server_port) if inode in inodes}


def wait_until(is_so: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Wait, looking 50 times a second, and return the seconds it took.

    Raises:
        TimeoutError: it was not so in time; the message says `what`.
    """
    begin = time.monotonic()
    while not is_so():
        if time.monotonic() - begin > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.02)
    return time.monotonic() - begin


def _parents() -> Iterator[tuple[int, int]]:
    """Yield every process that lives, with its parent."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    yield int(name), int(fields[1])


def _role(pid: int) -> Role:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        for role in _ROLES:
            if f"anabranch_server.{role}".encode() in words or any(
                word.startswith(_STAND_INS) and word.endswith(f"_{role}".encode()) for word in words
            ):
                return role
    return "other"


def _connections(server_port: int) -> Iterator[tuple[str, int]]:
    """Yield inode and client's port of the server's side of every connection to `server_port`."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[1].rpartition(":")[2], 16) == server_port and fields[9] != "0":
                    yield fields[9], int(fields[2].rpartition(":")[2], 16)
