"""How many connections the kernel has open at a port; grpcio does not say."""

from pathlib import Path
from typing import Final

__all__ = ["open_connections"]

_ESTABLISHED: Final = "01"


def open_connections(port: int, net: Path = Path("/proc/self/net")) -> int | None:
    """Return the number of established TCP connections whose local port is `port`.

    Args:
        port: local port.
        net: folder of the kernel's tables (proc(5), `/proc/net/tcp`).

    Returns:
        The number, or None where the kernel does not tell.
    """
    wanted = f"{port:04X}"
    count, told = 0, False
    for table in ("tcp", "tcp6"):
        try:
            lines = (net / table).read_text().splitlines()[1:]
        except OSError:
            continue
        told = True
        for line in lines:
            _, local, _, state, *_ = line.split(maxsplit=4)
            count += state == _ESTABLISHED and local.rpartition(":")[2] == wanted
    return count if told else None
