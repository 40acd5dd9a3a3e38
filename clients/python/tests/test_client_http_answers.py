"""Answers as the asyncio client reads them from a stream, whole and broken."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_client.calls import Answer
from anabranch_client.http_answers import BrokenOff, NotHttp, SpokeHttp2, read_answer


def read(*parts: bytes, error: Exception | None = None) -> tuple[Answer, bool]:
    """Read an answer that comes in parts, after which the connection ends."""

    async def scenario() -> tuple[Answer, bool]:
        reader = asyncio.StreamReader()
        reading = asyncio.ensure_future(read_answer(reader))
        for part in parts:
            reader.feed_data(part)
            await asyncio.sleep(0)
        if error is None:
            reader.feed_eof()
        else:
            reader.set_exception(error)
        return await reading

    return asyncio.run(scenario())


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("whole", "body", "stays_open"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", True),
        (OK + b"content-length:3\r\nConnection: close\r\n\r\nabc", b"abc", False),
        (OK + b"Content-Length: 0\r\n\r\n", b"", True),
        (OK + b"\r\nto the end", b"to the end", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", b"a", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n1;x=y\r\nd\r\n0\r\n\r\n",
         b"ab\nd", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nTrailer: 1\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", b"a", True),
        (b"HTTP/1.1 200\nContent-Length: 1\n\na", b"a", True),
    ],
)  # fmt: skip
def test_an_answer_is_the_same_however_it_is_cut(
    whole: bytes, body: bytes, stays_open: bool
) -> None:
    for cut in range(1, len(whole)):
        answer, open_after = read(whole[:cut], whole[cut:])
        assert (answer.status, answer.body, open_after) == (200, body, stays_open)


def test_of_a_repeated_header_the_last_counts() -> None:
    answer, _ = read(OK + b"X: 1\r\nx:  2 \r\nContent-Length: 0\r\n\r\n")
    assert answer.headers == {"x": "2", "content-length": "0"}


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    answer, open_after = read(b"HTTP/1.1 %d x\r\n\r\n" % status)
    assert (answer.status, answer.body, open_after) == (status, b"", True)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([], ConnectionResetError),
        ([b"H"], BrokenOff),
        ([OK], BrokenOff),
        ([OK, b"Content-Length: 3\r\n\r\nab"], BrokenOff),
        ([OK, b"Transfer-Encoding: chunked\r\n\r\n3\r\nab"], BrokenOff),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], NotHttp),
        ([b"HTTP/1.1 999999 ?\r\n\r\n"], NotHttp),
        ([OK, b"no colon\r\n\r\n"], NotHttp),
        ([OK, b"Content-Length: -1\r\n\r\n"], NotHttp),
        ([OK, b"Content-Length: 1, 1\r\n\r\na"], NotHttp),
        ([OK, b"Transfer-Encoding: gzip\r\n\r\n"], NotHttp),
        ([OK, b"Transfer-Encoding: chunked\r\n\r\nx\r\n"], NotHttp),
        ([OK, b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"], NotHttp),
        ([OK, b"X: 1\r\n" * 201], NotHttp),
        ([b"x" * 100_000], NotHttp),
        ([b"\0\0\6\4\0\0\0\0\0"], SpokeHttp2),
        ([b"\0\0\6\5\0\0\0\0\0\n"], NotHttp),
    ],
)
def test_what_is_no_answer(parts: Sequence[bytes], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        read(*parts)


def test_a_reset_within_an_answer_breaks_it_off() -> None:
    with pytest.raises(BrokenOff):
        read(OK, error=ConnectionResetError("reset"))
    with pytest.raises(ConnectionResetError):
        read(error=ConnectionResetError("reset"))


PIECES = st.sampled_from(
    [OK, b"\r\n", b"\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n", b"0",
     b"5\r\n", b"100", b"HTTP/1.1 100 x\r\n\r\n", b":", b"\0\0\0\4", b"\xff", b"Connection: close"]
)  # fmt: skip


@settings(max_examples=400)
@given(st.lists(PIECES | st.binary(max_size=8), max_size=12))
def test_whatever_comes_is_an_answer_or_a_reason(parts: list[bytes]) -> None:
    try:
        answer, _ = read(*[part for part in parts if part])
    except (ConnectionError, BrokenOff, NotHttp, SpokeHttp2):
        return
    assert 200 <= answer.status <= 999
    assert len(answer.body) <= sum(map(len, parts))
