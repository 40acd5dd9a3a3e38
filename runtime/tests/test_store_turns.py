"""A store's writer under misuse: other threads, other processes, objects dropped in odd order.

Invariant: what is refused leaves the writer as it was, and nothing ends the process.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from anabranch_runtime import _native
from anabranch_runtime.store import (
    Capacity,
    Segment,
    SegmentBuilder,
    StoreWriter,
)
from anabranch_wire.errors import InvalidInput, Unavailable

DIM: Final = 4
ROWS: Final = 100_000
ROOM: Final = Capacity(arena_rows=ROWS, keys=2 * ROWS)

FORK: Final = """
import os
import sys
import numpy as np
from pathlib import Path
from anabranch_runtime.store import Capacity, Segment, StoreWriter

segment = Segment.open(Path(sys.argv[1]))
writer = StoreWriter.create(segment, [Capacity(arena_rows=10, keys=segment.tables[0].rows + 10)])
change = writer.begin()
change.upsert(0, np.array([1]), np.full((1, 4), 7, np.float32))
if (child := os.fork()) == 0:
    refused = 0
    for work in (change.apply, change.close, writer.memory, lambda: writer.reclaim(1)):
        try:
            work()
        except RuntimeError as error:
            refused += "another process" in str(error)
    rows, _ = writer.generation.rows(0, np.array([1]), 2)
    del change
    del writer
    os._exit(0 if refused == 4 and not (rows == 7).any() else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
change.apply()
rows, _ = writer.generation.rows(0, np.array([1]), 2)
sys.exit(status or not (rows == 7).all())
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turns")
    with SegmentBuilder(folder, "base.seg") as builder:
        table = builder.table("rows", DIM, rows=ROWS)
        table.add(np.arange(ROWS), np.ones((ROWS, DIM), np.float32))
        builder.finish()
    return folder / "base.seg"


@pytest.fixture
def writer(base: Path) -> StoreWriter:
    return StoreWriter.create(Segment.open(base), [ROOM])


@contextmanager
def another_thread(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """A thread that works meanwhile; whatever it raised is raised at the end."""
    faults: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
    if faults:
        raise faults[0]


def rewrite(writer: StoreWriter, rows: int, value: float) -> None:
    with writer.begin() as change:
        change.upsert(0, np.arange(rows), np.full((rows, DIM), value, np.float32))
        change.apply()


def test_what_failed_half_way_is_never_applied(base: Path) -> None:
    segment = Segment.open(base).native
    writer = _native.StoreWriter.create(segment, [(10, ROWS + 10)], 1)
    keys = np.arange(50)
    rows = np.zeros((50, DIM), np.float32)
    fails: list[Callable[[_native.Change], None]] = [
        lambda change: change.upsert(0, keys, rows),
        lambda change: change.upsert_encoded(0, keys, rows.view(np.uint8)),
        lambda change: change.erase(0, keys),
    ]
    for fail in fails:
        change = writer.begin()
        with pytest.raises(Unavailable, match="arena rows are in use"):
            fail(change)
        for use in (change.apply, change.counts):
            with pytest.raises(RuntimeError, match="closed"):
                use()
        assert writer.stats(0)[2] == 0  # arena rows in use


def test_nothing_of_a_change_is_told_while_another_thread_works(writer: StoreWriter) -> None:
    growth = writer.grow([ROOM])
    change = writer.begin()
    refused = 0
    with another_thread(lambda: growth.step(ROWS)) as thread:
        while thread.is_alive():
            try:
                assert change.counts.updated == 0
            except RuntimeError:
                refused += 1
    assert refused > 0
    assert change.counts.updated == 0


def test_a_change_is_dropped_while_another_thread_works(writer: StoreWriter) -> None:
    growth = writer.grow([ROOM])
    changes = [writer.begin()]
    changes[0].upsert(0, np.arange(1000), np.full((1000, DIM), 3, np.float32))
    with another_thread(lambda: growth.step(2 * ROWS)):
        changes.clear()
    assert writer.stats(0).arena_used == 0
    rewrite(writer, 10, 2)
    grown = growth.finish()
    rows, found = grown.generation.rows(0, np.arange(ROWS), grown.version)
    assert found.all()
    assert (rows[:10] == 2).all()
    assert (rows[10:] == 1).all()


def test_a_growth_is_dropped_while_another_thread_changes_rows(writer: StoreWriter) -> None:
    growths = [writer.grow([ROOM])]
    growths[0].step(10)
    with another_thread(lambda: rewrite(writer, ROWS, 2)):
        growths.clear()
    growth = writer.grow([ROOM])  # none is under way
    grown = growth.finish()
    rows, _ = grown.generation.rows(0, np.arange(ROWS), grown.version)
    assert (rows == 2).all()


def test_owners_may_go_before_what_works_through_them(base: Path) -> None:
    writer = StoreWriter.create(Segment.open(base), [ROOM])
    generation, fd = writer.generation, os.dup(writer.fd)
    change, growth = writer.begin(), writer.grow([ROOM])
    del writer
    change.upsert(0, np.arange(10), np.full((10, DIM), 2, np.float32))
    change.apply()
    del change
    grown = growth.finish()
    del growth
    for each, version in ((generation, 2), (grown.generation, 2)):
        rows, _ = each.rows(0, np.arange(10), version)
        assert (rows == 2).all()
    os.close(fd)


def test_a_forked_process_cannot_write_what_its_parent_does(base: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(base)], check=True, timeout=60)


@pytest.mark.parametrize("number", [-1, 2**32, 2**64])
def test_room_that_no_table_can_have_is_refused(number: int) -> None:
    with pytest.raises(InvalidInput, match="arena_rows"):
        Capacity(arena_rows=number, keys=1)
    with pytest.raises(InvalidInput, match="keys"):
        Capacity(arena_rows=1, keys=number)


def test_a_folder_with_a_null_byte_is_not_the_one_before_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="null byte"):
        SegmentBuilder(Path(f"{tmp_path}\0/elsewhere"), "rows.seg")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_segment_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.seg")
    with pytest.raises(OSError, match="regular file"):
        Segment.open(tmp_path / "rows.seg")


_LET_GO: Final = """
import sys
import threading
import time
from pathlib import Path

from anabranch_runtime.store import Capacity, Generation, Segment, StoreWriter

segment = Segment.open(Path(sys.argv[1]))
writer = StoreWriter.create(segment, [Capacity(arena_rows=10, keys=8_000_000)])
sys.setswitchinterval(1000.0)  # a thread gets on only where another one lets it


def is_let_in():
    passed = []

    def pass_by():
        time.sleep(0.01)
        passed.append(True)

    held = Generation.map(writer.fd, segment)
    waiting = threading.Thread(target=pass_by)
    waiting.start()
    end_s = time.perf_counter() + 0.1
    while time.perf_counter() < end_s:
        pass
    before = bool(passed)
    held = None
    after = bool(passed)
    waiting.join()
    return after and not before


sys.exit(not any(is_let_in() for _ in range(20)))
"""


def test_other_threads_go_on_while_memory_is_unmapped(base: Path) -> None:
    subprocess.run([sys.executable, "-c", _LET_GO, base], check=True, timeout=120)
