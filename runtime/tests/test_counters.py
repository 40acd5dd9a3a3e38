import fcntl
import math
import mmap
import os
import subprocess
import sys
import threading

import pytest

from anabranch_runtime.counters import CountersPage, CountersReader, Series
from anabranch_wire.errors import Corrupt, Unavailable

LABELS = [("version", "42"), ("model", "ctr")]
SORTED = (("model", "ctr"), ("version", "42"))
BOUNDS = (0.001, 0.01, 0.1)

WORKER = """
import os, sys
from anabranch_runtime.counters import CountersPage

page = CountersPage.create(65536)
slot = page.counter("requests_total", [("worker", "0")])
page.add(slot, 41)
page.add(slot, 1)
print("ready", page.fd, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def page() -> CountersPage:
    return CountersPage.create(65536)


def read(page: CountersPage) -> list[Series]:
    return CountersReader(page.fd).read()


def test_a_series_reads_back_as_it_was_described(page: CountersPage) -> None:
    page.add(page.counter("requests_total", LABELS), 3)
    page.set(page.gauge("queue_rows"), 2.5)
    histogram = page.histogram("duration_seconds", LABELS, BOUNDS)
    for value in (0.001, 0.002, 5.0):
        page.observe(histogram, value)

    assert read(page) == [
        Series("counter", "requests_total", SORTED, (3.0,), (), 3.0, 0),
        Series("gauge", "queue_rows", (), (2.5,), (), 2.5, 0),
        Series("histogram", "duration_seconds", SORTED, (1, 1, 0, 1), BOUNDS, 5.003, 3),
    ]


def test_labels_may_hold_any_text(page: CountersPage) -> None:
    labels = [("model", 'modèle "a"\n\x00\U0001f600'), ("empty", "")]
    page.counter("requests_total", labels)

    assert read(page)[0].labels == tuple(sorted(labels))


def test_the_same_description_is_the_same_slot(page: CountersPage) -> None:
    slot = page.counter("requests_total", LABELS)

    assert page.counter("requests_total", LABELS[::-1]) == slot
    assert page.counter("requests_total", []) != slot


def test_another_kind_or_other_bounds_are_refused(page: CountersPage) -> None:
    page.counter("requests_total", LABELS)
    page.histogram("duration_seconds", [], BOUNDS)

    with pytest.raises(ValueError, match="in use with another kind"):
        page.gauge("requests_total", LABELS)
    with pytest.raises(ValueError, match="in use with other bounds"):
        page.histogram("duration_seconds", [], BOUNDS[1:])


def test_whole_and_fractional_amounts_add_up(page: CountersPage) -> None:
    slot = page.counter("busy_seconds_total")

    page.add(slot, 2**53)
    page.add(slot, 1)
    page.add(slot, 1)
    page.add(slot, 0.5)

    assert read(page)[0].values == (2.0**53 + 2,)


def test_counters_never_fall(page: CountersPage) -> None:
    slot = page.counter("requests_total")

    for amount in (-1, -0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match="a counter cannot take"):
            page.add(slot, amount)


def test_a_recorder_updates_everything_in_one_call(page: CountersPage) -> None:
    slots = [
        page.counter("requests_total"),
        page.counter("rows_total"),
        page.histogram("duration_seconds", [], BOUNDS),
        page.gauge("queue_rows"),
    ]
    recorder = page.recorder(slots)

    recorder.record(1, 256, 0.02, 7)
    recorder.record(1, 128, 0.002, 5)

    assert [series.values for series in read(page)] == [(2.0,), (384.0,), (0, 1, 1, 0), (5.0,)]


def test_a_recorder_checks_what_it_is_given(page: CountersPage) -> None:
    recorder = page.recorder([page.counter("requests_total")])

    with pytest.raises(ValueError, match="expected 1 values, got 2"):
        recorder.record(1, 2)
    with pytest.raises(TypeError, match="must be real number"):
        recorder.record("1")  # type: ignore[arg-type]  # to be refused, or a stand-in
    assert read(page)[0].values == (0.0,)


def test_a_recorder_keeps_its_page_alive() -> None:
    page = CountersPage.create(4096)
    recorder = page.recorder([page.counter("requests_total")])
    reader = CountersReader(page.fd)

    del page
    recorder.record(1)

    assert reader.read()[0].values == (1.0,)


def test_retired_series_vanish_and_their_room_is_used_again() -> None:
    page = CountersPage.create(8192)
    for version in range(1000):
        labels = [("model", "ctr"), ("version", str(version))]
        counter = page.counter("requests_total", labels)
        histogram = page.histogram("duration_seconds", labels, BOUNDS)
        page.add(counter, 1)
        assert [series.values[0] for series in read(page)] == [1.0, 0]

        page.retire(counter)
        page.retire(histogram)
        page.add(counter, 1)  # a late update is dropped

    assert read(page) == []


def test_a_full_page_says_so() -> None:
    page = CountersPage.create(4096)

    for number in range(31):
        page.counter(f"c{number}_total")

    with pytest.raises(Unavailable, match="counters page of 4096 bytes is full: 31 series"):
        page.counter("one_too_many_total")

    page.add(page.counter("c0_total"), 1)
    assert read(page)[0].values == (1.0,)


def test_numbers_that_are_no_slot_are_refused(page: CountersPage) -> None:
    page.counter("requests_total")

    for slot in (0, 1, 2, 1 << 24 | 1, 2**64 - 1):
        with pytest.raises(ValueError, match="is not of this counters page"):
            page.add(slot, 1)


def test_threads_lose_nothing(page: CountersPage) -> None:
    recorder = page.recorder([page.counter("requests_total")])

    def work() -> None:
        for _ in range(5000):
            recorder.record(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read(page)[0].values == (20000.0,)


def test_the_page_of_another_process_is_readable_also_after_it_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdin is not None
        fd = int(worker.stdout.readline().split()[1])
        shared = os.open(f"/proc/{worker.pid}/fd/{fd}", os.O_RDONLY)
        reader = CountersReader(shared)
        os.close(shared)
        alive = reader.read()
        worker.stdin.close()

    assert worker.returncode == -9
    assert alive == reader.read()
    assert alive == [Series("counter", "requests_total", (("worker", "0"),), (42.0,), (), 42.0, 0)]


def test_readers_cannot_write_or_resize(page: CountersPage) -> None:
    with pytest.raises(PermissionError):
        mmap.mmap(page.fd, page.size_bytes)
    for size in (4096, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(page.fd, size)


def test_damage_is_named() -> None:
    page = CountersPage.create(4096)
    page.counter("requests_total")
    content = bytearray(os.pread(page.fd, 4096, 0))
    content[64 + 50] ^= 1

    damaged = os.memfd_create("damaged", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(damaged, content)
    with pytest.raises(Corrupt, match="its size is not sealed"):
        CountersReader(damaged)
    fcntl.fcntl(damaged, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    reader = CountersReader(damaged)
    os.close(damaged)

    with pytest.raises(Corrupt, match="record at byte 64: checksum mismatch"):
        reader.read()


def test_a_closed_descriptor_is_an_os_error() -> None:
    with pytest.raises(OSError, match="cannot open a counters page"):
        CountersReader(-1)


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="a counters page has 4096 to"):
        CountersPage.create(100)
