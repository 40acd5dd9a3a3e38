import re

import pytest

from anabranch_server.http.heads import RequestHead
from anabranch_server.http.infer_route import InferRoute
from anabranch_server.http.known_heads import KnownHead, KnownHeads
from anabranch_server.http.routes import Target
from anabranch_server.limits import Limits

TARGET = Target(InferRoute(Limits()), "m", "")
URL = b"/v2/models/m/infer"
TEXT = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\n"
HEADERS = [(b"host", b"t"), (b"content-length", b"5")]


def kept(
    text: bytes = TEXT, url: bytes = URL, headers: list[tuple[bytes, bytes]] | None = None
) -> bool:
    headers = HEADERS if headers is None else headers
    heads = KnownHeads()
    known = KnownHead(TARGET, dict(headers), RequestHead(), 5, is_short=True)
    heads.keep(text, known, url, headers)
    return heads.find(text) is known


def test_a_plain_head_is_kept() -> None:
    assert kept()
    assert kept(TEXT.replace(b"Host: t", b"HOST:  t "))
    assert kept(
        TEXT.replace(b"\r\n\r\n", b"\r\nConnection: Keep-Alive\r\n\r\n"),
        headers=[*HEADERS, (b"connection", b"Keep-Alive")],
    )


@pytest.mark.parametrize(
    "name",
    ["expect", "transfer-encoding", "upgrade", "x-request-id", "traceparent", "tracestate"],
)
def test_a_head_that_changes_what_follows_or_will_not_come_again_is_not(name: str) -> None:
    line = f"\r\n{name}: 1\r\n\r\n".encode()

    assert not kept(TEXT.replace(b"\r\n\r\n", line), headers=[*HEADERS, (name.encode(), b"1")])


@pytest.mark.parametrize(
    ("text", "url", "headers"),
    [
        (TEXT, b"/v2/models/n/infer", HEADERS),
        (TEXT, URL, [(b"host", b"t"), (b"content-length", b"6")]),
        (TEXT, URL, [(b"content-length", b"5"), (b"host", b"t")]),
        (TEXT, URL, [(b"content-length", b"5")]),
        (TEXT.replace(b"POST", b"GET"), URL, HEADERS),
        (TEXT.replace(b"HTTP/1.1", b"HTTP/1.0"), URL, HEADERS),
        (TEXT.replace(b"\r\nContent", b"\nContent"), URL, HEADERS),
        (TEXT.replace(b"\r\n", b"\n") + b"a\r\n\r\n", URL, HEADERS),
        (TEXT + b"{}\r\n\r\n", URL, HEADERS),
        (TEXT[:-2], URL, HEADERS),
        (re.sub(rb"Content.*", b"", TEXT), URL, HEADERS[:1]),
        (b"", URL, HEADERS),
    ],
)
def test_a_text_that_is_not_that_head_is_not_kept(
    text: bytes, url: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    assert not kept(text, url, headers)


def test_heads_are_not_kept_without_bound() -> None:
    heads = KnownHeads()
    for place in range(2000):
        url = b"/v2/models/m%d/infer" % place
        text = TEXT.replace(URL, url)
        heads.keep(
            text, KnownHead(TARGET, dict(HEADERS), RequestHead(), 5, is_short=True), url, HEADERS
        )
        assert heads.find(text) is not None
    assert heads.find(TEXT.replace(URL, b"/v2/models/m0/infer")) is None
