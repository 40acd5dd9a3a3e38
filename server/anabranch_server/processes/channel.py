"""What two processes of a server talk over: messages with descriptors, in order, none cut in two.

A channel is one end of a SOCK_SEQPACKET pair. It belongs to one thread, which either blocks in
`receive` or attaches it to its event loop. Invariants: `send` never waits for the peer; a message
comes with exactly the descriptors that it has to have, which then belong to the receiver; every
other descriptor is closed; after the first malformed packet nothing more is read.
"""

import array
import errno
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from anabranch_server.processes.message import Message
from anabranch_server.processes.packets import (
    MAX_DESCRIPTORS,
    MAX_PACKET_BYTES,
    close_all,
    pack,
    unpack,
)
from anabranch_wire.errors import Corrupt

__all__ = ["MAX_WAITING", "Channel", "ChannelClosed", "EventLoop", "Received", "pair"]

_log = logging.getLogger(__name__)

MAX_WAITING: Final = 256
"""Messages that may wait for a peer that does not read, where nothing else is said."""

_AT_ONCE: Final = 64
"""Messages that are read before the event loop has its turn."""

_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
_RECEIVE_FLAGS: Final = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_SEND_FLAGS: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL

M = TypeVar("M", bound=Message)


class ChannelClosed(Exception):
    """The peer is gone, or takes nothing any more; never leaves the process."""


class EventLoop(Protocol):
    """What a channel needs of an event loop; asyncio's and uvloop's have it."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> object:
        """Call back whenever `fd` is readable."""
        ...

    def remove_reader(self, fd: int, /) -> object:
        """Call back no more."""
        ...

    def add_writer(self, fd: int, callback: Callable[[], None], /) -> object:
        """Call back whenever `fd` is writable."""
        ...

    def remove_writer(self, fd: int, /) -> object:
        """Call back no more."""
        ...


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A message and its descriptors, which belong to whoever received it."""

    message: M
    fds: list[int]


@dataclass(frozen=True, slots=True)
class _Attachment(Generic[M]):
    loop: EventLoop
    on_message: Callable[[M, list[int]], None]
    on_closed: Callable[[], None]


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new channel, to be given to a `Channel` or to another process."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Channel(Generic[M]):
    """One end of a channel.

    Args:
        sock: from `pair`, or `socket.socket(fileno=fd)`; belongs to the channel from now on.
        incoming_type: the message class, or union of them, that may come.
        max_waiting: messages that may wait for the peer, beside what the kernel holds.
    """

    def __init__(
        self, sock: socket.socket, incoming_type: object, max_waiting: int = MAX_WAITING
    ) -> None:
        sock.setblocking(False)
        self._max_waiting = max_waiting
        self._socket = sock
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(incoming_type)
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._broken = ""  # why nothing can be sent any more
        self._attachment: _Attachment[M] | None = None

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Send, or put into the queue where the peer is behind. Does not wait.

        Args:
            message: what to say.
            fds: as many descriptors as the message has; they stay the caller's and may be closed
                as soon as this returns.

        Raises:
            ChannelClosed: the peer is gone, or more than `max_waiting` messages wait for it; then
                nothing can be sent any more, and a loop's `on_closed` follows.
            TooLarge: the message is too long for any channel.
        """
        if len(fds) != message.descriptors:
            raise ValueError(
                f"{type(message).__name__} has {message.descriptors} descriptors, not {len(fds)}"
            )
        if self._broken:
            raise ChannelClosed(self._broken)
        try:
            packet, memory = pack(message)
            own = [memory] if memory is not None else []
            try:
                if self._waiting or not self._try_send(packet, [*fds, *own]):
                    self._put_back(packet, fds, own)
            finally:
                close_all(own)
        except OSError as error:
            self._break(str(error.strerror))
            raise ChannelClosed(self._broken) from None

    def receive(self) -> Received[M] | None:
        """Wait for the next message; None at the end, when the channel is closed. Not in a loop.

        Raises:
            Corrupt: a malformed packet came, and the channel is closed.
        """
        while self._socket.fileno() >= 0:
            try:
                received = self._take()
            except BlockingIOError:
                self._wait(select.POLLIN)
            except Corrupt:
                self.close()
                raise
            else:
                if received is None:
                    self.close()
                return received
        return None

    def flush(self, timeout_s: float) -> bool:
        """Wait until the kernel has every message, and return whether it has. Not in a loop."""
        end = time.monotonic() + timeout_s
        while self._waiting and (left_s := end - time.monotonic()) > 0:
            self._wait(0, left_s)
        return not self._waiting and not self._broken

    def attach(
        self,
        loop: EventLoop,
        on_message: Callable[[M, list[int]], None],
        on_closed: Callable[[], None],
    ) -> None:
        """Let an event loop do the work from now on. Its thread.

        Args:
            loop: the loop that runs on this thread.
            on_message: takes each message and, for good, its descriptors.
            on_closed: called once when the peer is gone or a malformed packet came (which is
                logged), after the last message; the channel is closed then. Not called after
                `close` or `detach`.
        """
        self._attachment = _Attachment(loop, on_message, on_closed)
        loop.add_reader(self._socket.fileno(), self._on_readable)
        if self._waiting:
            loop.add_writer(self._socket.fileno(), self._on_writable)

    def detach(self) -> None:
        """Take the channel from its event loop; messages stay where they are."""
        if self._attachment is None:
            return
        self._attachment.loop.remove_reader(self._socket.fileno())
        self._attachment.loop.remove_writer(self._socket.fileno())
        self._attachment = None

    def close(self) -> None:
        """Give up what waits and close; the peer sees the end of the file. Safe to call twice."""
        self.detach()
        self._broken = self._broken or "this end was closed"
        self._drop_waiting()
        self._socket.close()

    def _on_readable(self) -> None:
        attachment = self._attachment
        if attachment is None:
            return  # detached by another callback of the same round
        try:
            for _ in range(_AT_ONCE):
                if self._attachment is not attachment:
                    return  # a message made its receiver close or detach
                received = self._take()
                if received is None:
                    break
                attachment.on_message(received.message, received.fds)
            else:
                return
        except BlockingIOError:
            return
        except Corrupt as error:
            _log.error("%s", error.message, extra={"event": "bad_packet"})
        self.close()
        attachment.on_closed()

    def _on_writable(self) -> None:
        self._write_waiting()
        if not self._waiting and self._attachment is not None:
            self._attachment.loop.remove_writer(self._socket.fileno())

    def _take(self) -> Received[M] | None:
        """The next message, None at the end of the file; BlockingIOError when there is none yet."""
        try:
            packet, ancillary, flags, _ = self._receive_packet()
        except BlockingIOError:
            raise
        except OSError as error:
            raise Corrupt(f"a packet cannot be received: {error.strerror}") from None
        fds = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        taken = fds.tolist()
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            close_all(taken)
            raise Corrupt(
                f"a packet has more than {MAX_PACKET_BYTES} bytes or {MAX_DESCRIPTORS} "
                "descriptors, or this process has too many files open"
            )
        if not packet:
            close_all(taken)
            return None
        return Received(unpack(packet, taken, self._decoder), taken)

    def _receive_packet(self) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        while True:
            try:
                return self._socket.recvmsg(MAX_PACKET_BYTES, _ANCILLARY_BYTES, _RECEIVE_FLAGS)
            except ConnectionResetError:
                continue  # said once, before what a peer sent that left without reading all of ours

    def _try_send(self, packet: bytes, fds: Sequence[int]) -> bool:
        """Whether the kernel took it."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._socket.sendmsg([packet], rights, _SEND_FLAGS)
        except BlockingIOError:
            return False
        return True

    def _put_back(self, packet: bytes, fds: Sequence[int], own: list[int]) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise OSError(errno.ENOBUFS, f"the peer has not read {self._max_waiting} messages")
        kept: list[int] = []
        try:
            kept.extend(os.dup(fd) for fd in fds)
        except OSError:
            close_all(kept)
            raise
        self._waiting.append((packet, kept + own))
        own.clear()
        if self._attachment is not None:
            self._attachment.loop.add_writer(self._socket.fileno(), self._on_writable)

    def _write_waiting(self) -> None:
        try:
            while self._waiting:
                packet, fds = self._waiting[0]
                if not self._try_send(packet, fds):
                    return
                self._waiting.popleft()
                close_all(fds)
        except OSError as error:
            self._break(str(error.strerror))

    def _wait(self, events: int, timeout_s: float | None = None) -> None:
        """Wait for one of `events`, writing what waits meanwhile; for that alone without events."""
        if self._waiting:
            events |= select.POLLOUT
        poll = select.poll()
        poll.register(self._socket, events)
        poll.poll(None if timeout_s is None else timeout_s * 1000)
        self._write_waiting()

    def _break(self, why: str) -> None:
        """Send no more. What came may still be read; then the end of the file follows."""
        self._broken = why
        self._drop_waiting()
        if self._attachment is not None:
            self._attachment.loop.remove_writer(self._socket.fileno())
        with suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def _drop_waiting(self) -> None:
        while self._waiting:
            close_all(self._waiting.popleft()[1])
