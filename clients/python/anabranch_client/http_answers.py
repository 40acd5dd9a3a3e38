"""Reads one HTTP/1.1 answer from a stream (RFC 9112): a head, and a body by length or chunks."""

import asyncio
import re
from typing import Final

from anabranch_client.calls import Answer

__all__ = ["BrokenOff", "NotHttp", "SpokeHttp2", "read_answer"]

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")
_SETTINGS: Final = b"\4"


class NotHttp(Exception):
    """What came is no answer."""


class BrokenOff(Exception):
    """The connection ended within an answer."""


class SpokeHttp2(Exception):
    """The server spoke first, and HTTP/2."""


async def read_answer(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Return the answer, and whether the connection stays open after it.

    Interim answers (1xx) are passed over.

    Raises:
        ConnectionError: the connection ended before anything came.
        BrokenOff: it ended later.
        NotHttp, SpokeHttp2: another protocol.
    """
    first = await reader.read(1)
    if not first:
        raise ConnectionResetError("the server closed the connection")
    try:
        while True:
            answer, open_after = await _read(reader, first)
            if answer.status >= 200:
                return answer, open_after
            first = b""
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise BrokenOff(f"the connection ended within an answer: {error}") from None
    except asyncio.LimitOverrunError:
        raise NotHttp("a line or a head that is too long") from None


async def _read(reader: asyncio.StreamReader, first: bytes) -> tuple[Answer, bool]:
    if first == b"\0" and (await reader.readexactly(3))[2:] == _SETTINGS:
        raise SpokeHttp2
    status, open_after = _status(first + await reader.readuntil(b"\n"))
    headers = await _headers(reader)
    connection = headers.get("connection", "").lower()
    open_after = "close" not in connection and (open_after or "keep-alive" in connection)
    if status < 200 or status in (204, 304):
        return Answer(status, headers, b""), open_after
    if "transfer-encoding" in headers:
        if headers["transfer-encoding"].lower() != "chunked":
            raise NotHttp(f"transfer-encoding {headers['transfer-encoding']!r}")
        body = await _chunks(reader)
    elif "content-length" in headers:
        length = headers["content-length"]
        if not _LENGTH.fullmatch(length):
            raise NotHttp(f"content-length {length!r}")
        body = await reader.readexactly(int(length))
    else:
        body, open_after = await reader.read(), False
    return Answer(status, headers, body), open_after


def _status(line: bytes) -> tuple[int, bool]:
    found = _STATUS.fullmatch(line.rstrip(b"\r\n"))
    if found is None:
        raise NotHttp(repr(line[:100]))
    return int(found[2]), found[1] == b"1"


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(200):
        line = (await reader.readuntil(b"\n")).rstrip(b"\r\n")
        if not line:
            return headers
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise NotHttp(repr(line[:100]))
        headers[name.lower()] = value.strip()
    raise NotHttp("more than 200 headers")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while True:
        line = (await reader.readuntil(b"\n")).rstrip(b"\r\n")
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise NotHttp(f"a chunk that begins with {line[:20]!r}")
        size = int(found[1], 16)
        if size == 0:
            await _headers(reader)
            return b"".join(parts)
        parts.append(await reader.readexactly(size))
        if (await reader.readuntil(b"\n")).rstrip(b"\r\n"):
            raise NotHttp("a chunk longer than it says")
