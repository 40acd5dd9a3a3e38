import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch_runtime.counters import CountersPage
from anabranch_runtime.shared_words import SharedWords
from anabranch_wire.errors import Corrupt

MAX = 2**64 - 1


@contextmanager
def reader_of(words: SharedWords) -> Iterator[int]:
    fd = words.reader_fd()
    try:
        yield fd
    finally:
        os.close(fd)


def test_words_begin_at_zero_and_keep_what_is_stored() -> None:
    words = SharedWords.create(3)
    assert words.words == 3
    assert [words.load(index) for index in range(3)] == [0, 0, 0]

    words.store(1, MAX)

    assert [words.load(index) for index in range(3)] == [0, MAX, 0]


def test_additions_return_the_sum_and_wrap() -> None:
    words = SharedWords.create(1)

    assert words.add(0, 5) == 5
    assert words.add(0, -2) == 3
    assert words.add(0, -4) == MAX


def test_only_existing_words_and_fitting_values_are_taken() -> None:
    words = SharedWords.create(3)

    with pytest.raises(IndexError, match="word 3 of 3"):
        words.load(3)
    with pytest.raises(IndexError, match="word 3 of 3"):
        words.store(3, 1)
    with pytest.raises(TypeError):
        words.load(-1)
    with pytest.raises(TypeError):
        words.store(0, 2**64)
    for count in (0, 2**20 + 1):
        with pytest.raises(ValueError, match="shared words are 1 to 1048576"):
            SharedWords.create(count)


def test_a_writer_that_was_restarted_goes_on_with_the_same_words() -> None:
    first = SharedWords.create(2)
    first.store(0, 41)
    with reader_of(first) as fd:
        reader = SharedWords.open(fd, writable=False)
    second = SharedWords.open(first.fd, writable=True)
    del first

    assert second.add(0, 1) == 42
    assert reader.load(0) == 42


def test_a_reader_can_write_in_no_way() -> None:
    words = SharedWords.create(2)

    with reader_of(words) as fd:
        with pytest.raises(PermissionError, match="descriptor only reads"):
            SharedWords.open(fd, writable=True)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 4096)
        reader = SharedWords.open(fd, writable=False)
    assert not reader.writable
    with pytest.raises(PermissionError, match="open for reading only"):
        reader.store(0, 1)
    with pytest.raises(PermissionError, match="open for reading only"):
        reader.add(0, 1)


def test_what_is_no_page_of_words_is_refused() -> None:
    counters = CountersPage.create(4096)
    with pytest.raises(Corrupt, match="the header is missing"):
        SharedWords.open(counters.fd, writable=False)
    with pytest.raises(Corrupt, match="the size is not sealed"), open(os.devnull) as null:
        SharedWords.open(null.fileno(), writable=False)
    words = SharedWords.create(1)
    os.pwrite(words.fd, b"\xff", 24)  # the number of words
    with pytest.raises(Corrupt, match="damaged header"):
        SharedWords.open(words.fd, writable=False)


def test_another_process_publishes_and_no_reader_sees_a_word_go_back() -> None:
    words = SharedWords.create(2)
    script = f"""
from anabranch_runtime.shared_words import SharedWords
words = SharedWords.open({words.fd}, writable=True)
for value in range(1, 50_001):
    words.store(1, value)
"""
    seen: list[list[int]] = [[], []]

    def watch(into: list[int]) -> None:
        while not into or into[-1] < 50_000:
            value = words.load(1)
            if not into or value != into[-1]:
                into.append(value)

    threads = [threading.Thread(target=watch, args=(one,), daemon=True) for one in seen]
    for thread in threads:
        thread.start()
    subprocess.run([sys.executable, "-c", script], check=True, pass_fds=[words.fd], timeout=60)
    for thread in threads:
        thread.join(timeout=60)

    for one in seen:
        assert one[-1] == 50_000
        assert one == sorted(one)
