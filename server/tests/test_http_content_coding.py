import gzip
import random
import time
import zlib
from collections.abc import Callable

import pytest

from anabranch_server.http.content_coding import Coding, decompress
from anabranch_wire.errors import InvalidInput, TooLarge


def bare(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


def members(data: bytes) -> bytes:
    return gzip.compress(data[: len(data) // 3]) + gzip.compress(data[len(data) // 3 :])


# Random bytes do not shrink: the coded form passes the size of a piece where the data does.
@pytest.mark.parametrize("size", [0, 1, 65_500, 65_536, 200_000])
@pytest.mark.parametrize(
    ("coding", "packed"),
    [("gzip", gzip.compress), ("gzip", members), ("deflate", zlib.compress), ("deflate", bare)],
)
def test_bodies_of_any_length_are_read_up_to_the_limit(
    coding: Coding, packed: Callable[[bytes], bytes], size: int
) -> None:
    data = random.Random(size).randbytes(size)
    coded = packed(data)

    assert decompress(coded, coding, size) == data
    assert decompress(bytearray(coded), coding, size + 1) == data
    with pytest.raises(InvalidInput, match="in the middle of its"):
        decompress(coded[:-1], coding, size)
    with pytest.raises(InvalidInput):
        decompress(coded + b"x", coding, size)
    if size:
        with pytest.raises(TooLarge, match=f"larger than {size - 1} bytes"):
            decompress(coded, coding, size - 1)


def test_empty_members_do_not_take_the_square_of_their_number() -> None:
    data = random.Random(1).randbytes(8_000_000)
    many = gzip.compress(b"") * 16_000
    began_s = time.process_time()

    assert decompress(many + gzip.compress(data), "gzip", len(data)) == data
    assert (
        time.process_time() - began_s < 2
    )  # usually 0.4 s; with a copy of the rest each time, 8 s
    with pytest.raises(TooLarge, match="more than 16384 gzip members"):
        decompress(many * 2, "gzip", 10)
