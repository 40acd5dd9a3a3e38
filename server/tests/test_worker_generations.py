import asyncio
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.store import Capacity, Segment, SegmentBuilder, StoreWriter
from anabranch_server.processes.plans import GenerationPlan
from anabranch_server.worker.generations import Generations
from anabranch_server.worker.threads import FreshThreads

KEYS = np.arange(1, 101)
ROOM = [Capacity(arena_rows=10, keys=110)]


@pytest.fixture
def segment_file(tmp_path: Path) -> Path:
    with SegmentBuilder(tmp_path, "one.seg") as builder:
        table = builder.table("t", 4, rows=len(KEYS))
        table.add(KEYS, np.ones((len(KEYS), 4), np.float32))
        builder.finish()
    return tmp_path / "one.seg"


async def mapped_over(generations: Generations, number: int, base: int, writer: StoreWriter) -> int:
    """Map a generation; returns how many memory objects this process has mapped then."""
    view = await generations.view(GenerationPlan(1, number, 1), [base, writer.fd], idle=False)
    values, found = view.generation.rows(0, KEYS, 1)
    assert found.all()
    assert (values == 1).all()
    return memories()


def memories() -> int:
    """Memory objects without a file that this process has mapped, and segments in files."""
    gc.collect()
    files = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        head = line.split()
        if len(head) > 5 and (head[5].startswith("/memfd:") or head[5].endswith(".seg")):
            files.add((head[3], head[4]))
    return len(files)


def test_generations_over_one_file_map_it_once(segment_file: Path) -> None:
    asyncio.run(map_over_one_file(segment_file))


async def map_over_one_file(segment_file: Path) -> None:
    generations = Generations("lazy", FreshThreads())
    segment = Segment.open(segment_file)
    writers = [StoreWriter.create(segment, ROOM) for _ in range(2)]
    before = memories()

    for number, writer in enumerate(writers, 1):
        base = os.open(segment_file, os.O_RDONLY)
        assert await mapped_over(generations, number, base, writer) <= before
        os.close(base)


def test_a_copy_in_memory_takes_the_place_of_the_one_before(segment_file: Path) -> None:
    asyncio.run(map_over_copies(segment_file))


async def map_over_copies(segment_file: Path) -> None:
    generations = Generations("lazy", FreshThreads())
    copies = [Segment.open(segment_file, base="copy") for _ in range(2)]
    writers = [StoreWriter.create(copy, ROOM) for copy in copies]
    fds = [copy.memory_fd for copy in copies if copy.memory_fd is not None]
    own = [mappings_of(fd) for fd in fds]

    for number, (fd, writer) in enumerate(zip(fds, writers, strict=True), 1):
        await mapped_over(generations, number, fd, writer)

    assert all(mappings_of(fd) > before for fd, before in zip(fds, own, strict=True))


def mappings_of(fd: int) -> int:
    """Mappings of the memory behind a descriptor in this process."""
    inode = str(os.fstat(fd).st_ino)
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.split()[4] == inode for line in lines)
