import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.checksums import crc32c


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_parts_give_the_value_of_the_whole(head: bytes, tail: bytes) -> None:
    assert crc32c(tail, crc32c(head)) == crc32c(head + tail)


def test_anything_with_contiguous_bytes_will_do() -> None:
    array = np.arange(1000, dtype=np.float32)

    assert crc32c(array) == crc32c(array.tobytes())
    assert crc32c(array.data[10:20]) == crc32c(array[10:20].tobytes())
    assert crc32c(bytearray(b"abc")) == crc32c(b"abc")


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError):
        crc32c("text")  # type: ignore[arg-type]  # to be refused, or a stand-in
    with pytest.raises(ValueError, match="not C-contiguous"):
        crc32c(np.arange(10)[::2])
    with pytest.raises(TypeError):
        crc32c(b"", -1)


def test_many_threads_at_once() -> None:
    data = np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8)
    expected = crc32c(data)
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.extend(crc32c(data) for _ in range(20)))
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [expected] * 80
