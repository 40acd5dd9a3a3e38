"""What the store's benchmarks look up: segments that are made once a run, keys, and queries.

Row i of table t has the key `keys_of(t, i)` and the numbers `numbers_of([i], dim)`, so nothing has
to be kept to know what a lookup must answer; `check` compares before anything is timed.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Capacity,
    Generation,
    KeyKind,
    RowType,
    Segment,
    SegmentBuilder,
    StoreWriter,
)

__all__ = [
    "SEED",
    "Numbers",
    "SegmentSpec",
    "Store",
    "TableSpec",
    "aligned",
    "check",
    "keys_of",
    "make_segment",
    "numbers_of",
    "open_store",
    "uniform",
    "zipf",
]

SEED: Final = 20_240_229
_PATTERN_ROWS: Final = 4096
_CHUNK_ROWS: Final = 64 * _PATTERN_ROWS
_HUGE_PAGE_BYTES: Final = 2 << 20
_ZIPF_EXPONENT: Final = 1.05
_TABLE_SHIFT: Final = 40

Numbers = NDArray[np.int64]
"""Numbers of rows, as dense ids count them."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table.

    Attributes:
        rows: how many.
        dim: numbers per row.
        row_type: how they are kept.
        keys: kind of keys.
        first: number of the first row; the others count on.
    """

    rows: int
    dim: int
    row_type: RowType = "f32"
    keys: KeyKind = "hashed"
    first: int = 0


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """A segment of `tables` equal tables."""

    table: TableSpec
    tables: int = 1

    @property
    def name(self) -> str:
        """Name of its file."""
        table = self.table
        kind = f"{table.row_type}-{table.keys}-{table.first}"
        return f"{self.tables}x{table.rows}x{table.dim}-{kind}"


@dataclass(frozen=True, slots=True)
class Store:
    """A writer and what a reader maps of it."""

    path: Path
    segment: Segment
    writer: StoreWriter
    generation: Generation

    @property
    def version(self) -> int:
        """The store version to read."""
        return self.writer.version


def keys_of(table: int, numbers: Numbers) -> NDArray[np.uint64]:
    """Return the keys (n,) of rows (n,): random-looking, distinct over all tables.

    The finaliser of SplitMix64, which is one to one (Steele, Lea, Flood: Fast splittable
    pseudorandom number generators, OOPSLA 2014).
    """
    words = numbers.astype(np.uint64) + np.uint64((table << _TABLE_SHIFT) + SEED)
    words *= np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def numbers_of(rows: Numbers, dim: int) -> NDArray[np.float32]:
    """Return what rows (n,) hold: (n, dim), exact in every row type but int8."""
    return _pattern(dim)[rows % _PATTERN_ROWS]


def uniform(rng: np.random.Generator, rows: int, count: int) -> Numbers:
    """Return `count` row numbers, each as likely."""
    return rng.integers(0, rows, count)


def zipf(rng: np.random.Generator, rows: int, count: int) -> Numbers:
    """Return `count` row numbers, row k about as likely as (k + 1) ** -1.05.

    From the inverse of the continuous distribution; popular rows lie side by side, as they do where
    ids were numbered by frequency, which favours dense ids.
    """
    power = 1 - _ZIPF_EXPONENT
    spread = (rows + 1.0) ** power - 1
    drawn = (1 + rng.random(count) * spread) ** (1 / power)
    numbers: Numbers = np.minimum(drawn.astype(np.int64) - 1, rows - 1)
    return numbers


def aligned(rows: int, dim: int) -> NDArray[np.float32]:
    """Return zeros (rows, dim) from the start of a cache line on, in huge pages where possible.

    NumPy's own large arrays start in the middle of a line, so each of their rows touches one more.
    """
    size = max(4 * rows * dim, 1)
    memory = mmap.mmap(-1, size + _HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    begin = -whole.ctypes.data % _HUGE_PAGE_BYTES
    return whole[begin : begin + 4 * rows * dim].view(np.float32).reshape(rows, dim)


def make_segment(scratch: Path, spec: SegmentSpec) -> Path:
    """Return the segment's file in `scratch`, written on first use."""
    path = scratch / spec.name
    if path.exists():
        return path
    table = spec.table
    # Every chunk holds the same numbers, since chunks are whole repeats of the pattern.
    values = numbers_of(np.arange(table.first, table.first + _CHUNK_ROWS), table.dim)
    with SegmentBuilder(scratch, spec.name) as builder:
        for number in range(spec.tables):
            rows = builder.table(
                f"t{number}", table.dim, row_type=table.row_type, keys=table.keys, rows=table.rows
            )
            for begin in range(0, table.rows, _CHUNK_ROWS):
                count = min(_CHUNK_ROWS, table.rows - begin)
                numbers = np.arange(table.first + begin, table.first + begin + count)
                keys = None if table.keys == "dense_id" else keys_of(number, numbers)
                rows.add(keys, values[:count])
        builder.finish()
    return path


def open_store(
    scratch: Path, spec: SegmentSpec, *, arena_rows: int = 0, keys: int | None = None
) -> Store:
    """Make the segment, and a generation over it with room for `arena_rows` a table.

    Args:
        scratch: folder of segments.
        spec: the segment.
        arena_rows: rows a table beside those of the base.
        keys: distinct keys a table; None for those of the base, which gives a load of 0.6.
    """
    path = make_segment(scratch, spec)
    segment = Segment.open(path, residency="populated")
    capacity = Capacity(arena_rows=arena_rows, keys=keys or spec.table.rows)
    writer = StoreWriter.create(segment, [capacity] * spec.tables)
    return Store(path, segment, writer, Generation.map(writer.fd, segment))


def check(
    what: str, seen: NDArray[np.float32], expected: NDArray[np.float32], *, atol: float = 0.0
) -> None:
    """Compare before timing; a benchmark of wrong answers measures nothing.

    Raises:
        RuntimeError: they differ by more than `atol`.
    """
    if seen.shape != expected.shape or not np.allclose(seen, expected, rtol=0, atol=atol):
        raise RuntimeError(f"{what} answers other numbers than it should; nothing was measured")


def _pattern(dim: int) -> NDArray[np.float32]:
    """Numbers (4096, dim) that every row type but int8 holds exactly: quarters from -2 to 2."""
    rng = np.random.default_rng(SEED)
    return (rng.integers(-8, 9, (_PATTERN_ROWS, dim)) / 4).astype(np.float32)
