import itertools
import random

import httptools

from anabranch_server.http.chunk_sizes import ChunkSizes

HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Reader:
    """Reads one request by a parser as a connection does, and keeps what was told of its chunks."""

    def __init__(self) -> None:
        self.sizes = ChunkSizes()
        self.is_in_body = False
        self.on_chunk_header = self.sizes.begin
        self.on_chunk_complete = self.sizes.end
        self.parser = httptools.HttpRequestParser(self)

    def on_headers_complete(self) -> None:
        self.is_in_body = True

    def on_body(self, body: bytes) -> None:
        self.sizes.add(len(body))

    def read(self, piece: bytes) -> int:
        self.parser.feed_data(piece)
        return self.sizes.missing(memoryview(piece)) if self.is_in_body else 0


def test_sizes_are_told_wherever_the_pieces_end() -> None:
    dice = random.Random(3)
    for _ in range(300):
        sizes = [dice.choice((1, 2, 15, 16, 300)) for _ in range(4)]
        data = HEAD
        spans = []
        for size in sizes:
            line = dice.choice((b"%x", b"%X;a=1", b"000%x")) % size + b"\r\n"
            spans.append((len(data) + len(line), len(data) + len(line) + size))
            data += line + bytes(dice.choices(b"\r\n0f", k=size)) + b"\r\n"
        data += b"0\r\nX: 1\r\n\r\n"
        cuts = sorted({0, len(data), *dice.choices(range(len(data)), k=dice.randrange(20))})
        reader = Reader()

        for begin, end in itertools.pairwise(cuts):
            expected = [stop - end for start, stop in spans if begin < start <= end < stop]
            assert reader.read(data[begin:end]) == sum(expected)


def test_a_size_may_come_byte_by_byte() -> None:
    reader = Reader()
    reader.read(HEAD)
    line = b"0" * 100 + b"fFfffffffffffff0;x\r\n"

    told = [reader.read(line[at : at + 1]) for at in range(len(line))]

    assert told == [0] * (len(line) - 1) + [2**64 - 16]
