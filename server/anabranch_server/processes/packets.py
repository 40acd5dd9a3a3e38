"""One message as one packet of a channel, and back.

A packet is a byte that says its form and, for `INLINE`, the msgpack of the message. A message of
more than `INLINE_BYTES` lies in a sealed memfd instead, whose descriptor is the packet's last.
Nothing here trusts what it reads: the peer may be a process that has gone mad.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

import msgspec

from anabranch_server.processes.message import Message
from anabranch_wire.errors import Corrupt, TooLarge

__all__ = [
    "INLINE_BYTES",
    "MAX_DESCRIPTORS",
    "MAX_MESSAGE_BYTES",
    "MAX_PACKET_BYTES",
    "close_all",
    "pack",
    "sealed_memory",
    "unpack",
]

INLINE_BYTES: Final = 65536
"""Longest message that is sent as it is."""

MAX_PACKET_BYTES: Final = 1 + INLINE_BYTES

MAX_MESSAGE_BYTES: Final = 1 << 30
"""Longest message at all."""

MAX_DESCRIPTORS: Final = 128
"""Most descriptors of a packet, that of a long message included; Linux takes 253."""

_INLINE: Final = b"\0"
_MEMORY: Final = b"\1"
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_encoder: Final = msgspec.msgpack.Encoder()

M_co = TypeVar("M_co", bound=Message, covariant=True)


class MessageDecoder(Protocol[M_co]):
    """Makes messages of a closed set out of msgpack."""

    def decode(self, buf: bytes | mmap.mmap, /) -> M_co:
        """Return the message.

        Raises:
            msgspec.MsgspecError: it is none of the set.
        """
        ...


def pack(message: Message) -> tuple[bytes, int | None]:
    """Return the packet of a message, and the memfd of a long one, which is the caller's to close.

    Raises:
        TooLarge: the message has more than `MAX_MESSAGE_BYTES`.
        OSError: there is no memory, or no descriptor, for a long one.
    """
    body = _encoder.encode(message)
    if len(body) <= INLINE_BYTES:
        return _INLINE + body, None
    if len(body) > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"{type(message).__name__}: {len(body)} bytes are too long for a message, "
            f"at most {MAX_MESSAGE_BYTES} can be sent"
        )
    return _MEMORY, sealed_memory("anabranch-message", body)


def unpack(packet: bytes, fds: list[int], decoder: MessageDecoder[M_co]) -> M_co:
    """Return the message of a packet.

    Args:
        packet: its bytes.
        fds: its descriptors. Those of the message are left in it and then belong to the caller;
            when this raises, all are closed and the list is empty.
        decoder: knows which messages may come.

    Raises:
        Corrupt: it is no packet, or none of the messages, or not with its descriptors.
    """
    try:
        if packet[:1] == _INLINE:
            message = decoder.decode(packet[1:])
        elif packet == _MEMORY and fds:
            message = _decode_memory(fds.pop(), decoder)
        else:
            raise Corrupt(f"a packet begins with {packet[:8]!r}, expected a message")
        if len(fds) != message.descriptors:
            raise Corrupt(
                f"{type(message).__name__}: expected {message.descriptors} descriptors, "
                f"got {len(fds)}"
            )
    except msgspec.MsgspecError as error:
        close_all(fds)
        raise Corrupt(f"a packet is none of the expected messages: {error}") from None
    except (RecursionError, UnicodeError, OverflowError, ValueError, OSError) as error:
        close_all(fds)
        raise Corrupt(f"a packet cannot be read: {error}") from None
    except Corrupt:
        close_all(fds)
        raise
    return message


def sealed_memory(name: str, body: bytes) -> int:
    """Return a memfd with `body`, which nobody can change any more; the caller closes it.

    Raises:
        OSError: there is no memory, or no descriptor.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(body)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def close_all(fds: Iterable[int]) -> None:
    """Close descriptors that nobody took; a list is emptied."""
    taken = list(fds)
    if isinstance(fds, list):
        fds.clear()
    for fd in taken:
        os.close(fd)


def _decode_memory(fd: int, decoder: MessageDecoder[M_co]) -> M_co:
    """The message in a memfd, which is closed."""
    try:
        # Without the seals it could change, or be cut short, while it is read.
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise Corrupt("the memory of a long message is not sealed")
        size = os.fstat(fd).st_size
        if not 0 < size <= MAX_MESSAGE_BYTES:
            raise Corrupt(f"a long message has {size} bytes, at most {MAX_MESSAGE_BYTES} are read")
        with mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ) as body:
            return decoder.decode(body)
    finally:
        os.close(fd)
