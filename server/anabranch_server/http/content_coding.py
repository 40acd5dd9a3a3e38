"""Content codings of bodies: gzip and deflate, in and out, within a limit on the size inside.

`deflate` is the zlib format, as RFC 9110 section 8.4.1.2 has it; bare deflate streams, which some
clients send under that name, are read too.
"""

import zlib
from collections.abc import Sequence
from typing import Final, Literal

from anabranch_wire.errors import InvalidInput, TooLarge, UnsupportedMedia

__all__ = ["Coding", "accepted_coding", "compress", "content_coding", "decompress"]

Coding = Literal["gzip", "deflate"]

_NAMES: Final[dict[bytes, Coding | None]] = {
    b"gzip": "gzip",
    b"x-gzip": "gzip",
    b"deflate": "deflate",
    b"identity": None,
    b"": None,
}
_CODINGS: Final[tuple[Coding, ...]] = ("gzip", "deflate")
_GZIP: Final = 16 + zlib.MAX_WBITS
_BARE: Final = -zlib.MAX_WBITS
_LEVEL: Final = 1  # answers are scores: higher levels cost much and save little
_PIECE_BYTES: Final = 65_536
_MAX_MEMBERS: Final = 16_384
"""Members of a gzip body: blocked gzip, which has the most, fills one with up to 64 KiB."""


def content_coding(value: bytes) -> Coding | None:
    """Read a `Content-Encoding` header; None is a body as it is.

    Raises:
        UnsupportedMedia: another coding, or several.
    """
    try:
        return _NAMES[value.strip().lower()]
    except KeyError:
        raise UnsupportedMedia(
            f"Content-Encoding {value[:80].decode('latin-1')!r}: expected gzip, deflate or identity"
        ) from None


def accepted_coding(value: bytes) -> Coding | None:
    """Choose the coding of an answer from an `Accept-Encoding` header.

    The one of the highest weight wins; gzip before deflate when they are equal [Triton]. None
    leaves the answer as it is.
    """
    weights: dict[Coding, float] = {}
    for item in value.lower().split(b","):
        name, _, parameters = item.partition(b";")
        coding = _NAMES.get(name.strip())
        if coding is not None:
            weights[coding] = _weight(parameters)
    best: Coding | None = None
    highest = 0.0
    for coding in _CODINGS:
        weight = weights.get(coding, 0.0)
        if weight > highest:
            best, highest = coding, weight
    return best


def decompress(data: bytes | bytearray, coding: Coding, max_bytes: int) -> bytes:
    """Undo `coding`; stops as soon as the result would pass `max_bytes`.

    Takes time in proportion to `data` and the result, however many members a gzip body has.

    Raises:
        TooLarge: the result is larger than `max_bytes`, or in more members than anybody needs.
        InvalidInput: damaged, cut short, or followed by something else.
    """
    parts: list[bytes] = []
    size = at = members = 0
    source = memoryview(data)
    window = _window(data, coding)
    stream = zlib.decompressobj(window)
    while not stream.eof:
        # In pieces, because what lies behind the end of a member is copied.
        piece = source[at : at + _PIECE_BYTES]
        if not piece:
            raise InvalidInput(f"body ends in the middle of its {coding} stream")
        try:
            part = stream.decompress(piece, max_bytes - size + 1)
        except zlib.error as error:
            raise InvalidInput(f"body is not {coding}: {_reason(error)}") from None
        size += len(part)
        if size > max_bytes:
            raise TooLarge(f"body is larger than {max_bytes} bytes after {coding}")
        parts.append(part)
        at += len(piece) - len(stream.unused_data)
        if stream.eof and at < len(source):
            if coding != "gzip":  # a gzip body may have several members (RFC 1952 section 2.2)
                raise InvalidInput(
                    f"{len(source) - at} bytes behind the {coding} stream of the body"
                )
            members += 1
            if members >= _MAX_MEMBERS:
                raise TooLarge(f"body has more than {_MAX_MEMBERS} gzip members")
            stream = zlib.decompressobj(window)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def compress(parts: Sequence[bytes], coding: Coding) -> bytes:
    """Return the concatenation of `parts` under `coding`."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP if coding == "gzip" else zlib.MAX_WBITS)
    return b"".join([*(stream.compress(part) for part in parts), stream.flush()])


def _window(data: bytes | bytearray, coding: Coding) -> int:
    if coding == "gzip":
        return _GZIP
    # A zlib header is a multiple of 31 and names method 8 (RFC 1950 section 2.2).
    has_header = len(data) >= 2 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return zlib.MAX_WBITS if has_header else _BARE


def _weight(parameters: bytes) -> float:
    name, _, value = parameters.partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def _reason(error: zlib.error) -> str:
    return str(error).partition(": ")[2] or "damaged"
