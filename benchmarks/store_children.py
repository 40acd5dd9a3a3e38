"""Processes of the store's benchmarks: a child that runs one role, and the channel to it.

A role is a function that takes a `Channel`; the child's module is run as
`python MODULE.py ROLE FD`. Messages are msgspec structs, which carry descriptors where needed.
"""

import array
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

__all__ = ["Channel", "Child", "Closed", "child", "die_with_parent", "play", "started"]

AnyMessage = TypeVar("AnyMessage", bound=msgspec.Struct)

_MESSAGE_BYTES: Final = 65_536
_MOST_FDS: Final = 8
_PATIENCE_S: Final = 600.0
_PR_SET_PDEATHSIG: Final = 1


class Closed(Exception):
    """The other side has ended."""


class Channel:
    """One end of a pair of sockets that keeps messages apart."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.settimeout(_PATIENCE_S)
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def send(self, message: msgspec.Struct, *fds: int) -> None:
        """Send one message, with copies of `fds`.

        Raises:
            Closed: nobody is there any more.
        """
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._end.sendmsg([msgspec.json.encode(message)], extra)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, type: type[AnyMessage]) -> tuple[AnyMessage, list[int]]:
        """Wait for a message; its descriptors are the caller's.

        Raises:
            Closed: the other side has ended, and all that it sent was read.
            msgspec.ValidationError: it is another message.
        """
        try:
            data, fds, _, _ = socket.recv_fds(self._end, _MESSAGE_BYTES, _MOST_FDS)
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        return msgspec.json.decode(data, type=type), fds

    def is_readable(self) -> bool:
        """Whether `receive` would not wait."""
        return bool(self._poll.poll(0))

    def fileno(self) -> int:
        """The socket's descriptor, for `select`."""
        return self._end.fileno()

    def close(self) -> None:
        """Close this end."""
        self._end.close()


@dataclass(frozen=True, slots=True)
class Child:
    """A running role and the channel to it."""

    process: subprocess.Popen[bytes]
    channel: Channel

    def ask(
        self, message: msgspec.Struct, answer: type[AnyMessage], *fds: int
    ) -> tuple[AnyMessage, list[int]]:
        """Send, and wait for the answer."""
        self.channel.send(message, *fds)
        return self.channel.receive(answer)

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self.process.kill()
        self.process.wait()
        self.channel.close()


def child(module: Path, role: str, *, core: int | None, fds: Sequence[int] = ()) -> Child:
    """Start `role` of `module` in a process of its own.

    Args:
        module: file that calls `play`.
        role: name of the role.
        core: where it may run; None for where this process may.
        fds: descriptors that it inherits under their numbers.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        pin = ["taskset", "-c", str(core)] if core is not None else []
        process = subprocess.Popen(
            [*pin, sys.executable, str(module), role, str(theirs.fileno())],
            pass_fds=[theirs.fileno(), *fds],
        )
    return Child(process, Channel(ours))


@contextmanager
def started(
    module: Path, role: str, *, core: int | None, fds: Sequence[int] = ()
) -> Iterator[Child]:
    """As `child`; the process is killed on the way out, unless it ended by itself."""
    running = child(module, role, core=core, fds=fds)
    try:
        yield running
    finally:
        running.kill()


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def play(roles: Mapping[str, Callable[[Channel], None]]) -> None:
    """Be the child: run the role that the command line names; end when the parent does."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    role, fd = sys.argv[1], int(sys.argv[2])
    channel = Channel(socket.socket(fileno=fd))
    try:
        roles[role](channel)
    except Closed:
        os._exit(0)
