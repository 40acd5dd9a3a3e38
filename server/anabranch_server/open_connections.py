"""How many connections this process has open at a port; grpcio does not say."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["open_connections"]

_ESTABLISHED: Final = "01"
_NOT_TAKEN: Final = "0"
"""Inode of a connection that no process has accepted yet."""


def open_connections(port: int, net: Path = Path("/proc/self/net")) -> int | None:
    """Return the number of established TCP connections whose local port is `port`.

    Those of other processes that share the port do not count; those that nobody has accepted yet
    do, since they may be ours.

    Args:
        port: local port.
        net: folder of the kernel's tables (proc(5), `/proc/net/tcp`).

    Returns:
        The number, or None where the kernel does not tell.
    """
    wanted = f"{port:04X}"
    ours: set[str] | None = None
    count, told = 0, False
    for table in ("tcp", "tcp6"):
        try:
            lines = (net / table).read_text().splitlines()[1:]
        except OSError:
            continue
        told = True
        for line in lines:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split(maxsplit=10)
            if state == _ESTABLISHED and local.rpartition(":")[2] == wanted:
                ours = _own_sockets() if ours is None else ours
                count += inode in ours
    return count if told else None


def _own_sockets() -> set[str]:
    """Inodes of the sockets of this process, and the one of those that nobody has yet."""
    inodes = {_NOT_TAKEN}
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since
            kind, _, inode = os.readlink(f"/proc/self/fd/{fd}").partition(":")
            if kind == "socket":
                inodes.add(inode.strip("[]"))
    return inodes
