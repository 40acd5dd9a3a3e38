"""Says what it was started with on its channel `supervisor`, and ends when that is closed."""

import os
import socket
import sys

from anabranch_server.processes.boot import read_boot


def main() -> None:
    """Report and wait."""
    boot = read_boot(sys.argv)
    peer = socket.socket(fileno=boot.descriptors["supervisor"])
    open_fds = [fd for fd in range(1024) if _is_open(fd)]
    report = {
        "role": boot.role,
        "own": peer.fileno(),
        "descriptors": ",".join(f"{name}:{fd}" for name, fd in boot.descriptors.items()),
        "open": ",".join(map(str, open_fds)),
    }
    peer.send("\n".join(f"{name}={value}" for name, value in report.items()).encode())
    peer.recv(1)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
