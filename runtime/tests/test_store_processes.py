"""Processes that read beside a writer: nobody sees half a change, and rows are there once."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Capacity, Segment, SegmentBuilder, StoreWriter
from anabranch_wire.errors import Unavailable

DIM: Final = 32
READERS: Final = 2

READER: Final = """
import os
import sys
import numpy as np
from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import (
    FeatureArrays, FeatureLookup, Generation, LookupBuffer, LookupPlan, Segment,
)

segment_fd, generation_fd, words_fd, mine, rows, dim = map(int, sys.argv[1:])
words = SharedWords.open(words_fd, writable=True)
generation = Generation.map(generation_fd, Segment.map(segment_fd, residency="populated"))
names = ("hashed", "dense")
plan = LookupPlan(
    generation,
    [
        FeatureLookup(feature=name, table=table, combiner="none", buffer=0, column=dim * table)
        for table, name in enumerate(names)
    ],
    [LookupBuffer(columns=2 * dim)],
)
output = np.zeros((rows, 2 * dim), np.float32)
ids = np.random.default_rng(mine).permutation(rows)
arguments = plan.arguments([FeatureArrays(ids)] * 2, [output])
print("ready", flush=True)
batches = 0
while True:
    version = words.load(0)
    words.store(mine, version)  # what is read from here on: nothing older
    if version == 0:
        break
    plan.run(arguments, version, rows)
    if (output != version).any():
        sys.exit(f"version {version} has rows of {np.unique(output)}")
    batches += 1
print(batches, flush=True)
"""


def build(folder: Path, rows: int) -> Segment:
    """Two tables whose rows are full of 1, the number of the first version."""
    ones = np.ones((rows, DIM), np.float32)
    with SegmentBuilder(folder, "base.seg") as builder:
        builder.table("hashed", DIM, rows=rows).add(np.arange(rows), ones)
        builder.table("dense", DIM, keys="dense_id", rows=rows).add(None, ones)
        builder.finish()
    return Segment.open(folder / "base.seg", residency="populated")


@contextmanager
def reading(
    path: Path, writer: StoreWriter, words: SharedWords, number: int, rows: int
) -> Iterator["subprocess.Popen[str]"]:
    """A process that reads all rows again and again, until word 0 is 0; its lease is a word."""
    with path.open("rb") as file:
        fds = (file.fileno(), writer.fd, words.fd)
        process = subprocess.Popen(
            [sys.executable, "-c", READER, *map(str, (*fds, number, rows, DIM))],
            pass_fds=fds,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            words.store(0, 0)
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()


def rewrite(writer: StoreWriter, keys: NDArray[np.int64]) -> None:
    """Give every row of both tables the number of the next version."""
    with writer.begin() as change:
        values = np.full((len(keys), DIM), change.version, np.float32)
        change.upsert(0, keys, values)
        change.upsert(1, keys, values)
        change.apply()


def test_no_process_ever_sees_rows_of_two_versions(tmp_path: Path) -> None:
    rows, changes = 500, 300
    segment = build(tmp_path, rows)
    writer = StoreWriter.create(segment, [Capacity(arena_rows=4 * rows, keys=rows)] * 2)
    words = SharedWords.create(1 + READERS)
    for word in range(1 + READERS):
        words.store(word, writer.version)
    keys = np.arange(rows)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(reading(tmp_path / "base.seg", writer, words, 1 + n, rows))
            for n in range(READERS)
        ]
        deadline = time.monotonic() + 60
        while writer.version <= changes and time.monotonic() < deadline:
            try:
                rewrite(writer, keys)
            except Unavailable:  # readers hold older versions: there is room when they go on
                time.sleep(0.0005)
            words.store(0, writer.version)
            writer.reclaim(min(words.load(1 + n) for n in range(READERS)))
        words.store(0, 0)
        batches = [int(reader.communicate(timeout=30)[0]) for reader in readers]
        statuses = [reader.returncode for reader in readers]

    assert statuses == [0] * READERS
    assert writer.version == changes + 1
    assert min(batches) > 20


def test_more_readers_take_no_more_memory_for_rows(tmp_path: Path) -> None:
    rows = 100_000  # 26 MB of base rows
    segment = build(tmp_path, rows)
    writer = StoreWriter.create(segment, [Capacity(arena_rows=rows, keys=rows)] * 2)
    rewrite(writer, np.arange(rows))
    words = SharedWords.create(4)
    with ExitStack() as stack:
        totals = []
        pids: list[int | str] = ["self"]
        for number in range(1, 4):
            words.store(0, writer.version)
            reader = stack.enter_context(
                reading(tmp_path / "base.seg", writer, words, number, rows)
            )
            pids.append(reader.pid)
            while words.load(number) != writer.version:
                time.sleep(0.01)
            time.sleep(0.1)
            totals.append(sum(store_bytes(pid, "Pss") for pid in pids))
            assert store_bytes(reader.pid, "Rss") > 0.9 * segment.bytes

    assert totals[0] > segment.bytes
    assert totals[2] - totals[0] < 1 << 20


def store_bytes(pid: int | str, field: str) -> int:
    """Memory of a process's mappings of the segment and of shared memory, in bytes."""
    total = 0
    is_counted = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_counted = line.endswith("base.seg") or "/memfd:" in line
        elif is_counted and words[0] == f"{field}:":
            total += int(words[1]) * 1024
    return total
