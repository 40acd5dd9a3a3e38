"""Segments: files of immutable tables, mapped or copied into memory."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from anabranch_runtime import _native
from anabranch_runtime.store.file_systems import is_steady
from anabranch_runtime.store.integers import expect_table
from anabranch_runtime.store.rows import KeyKind, RowType

__all__ = ["Base", "Probes", "Residency", "Segment", "SegmentTable", "suited_base"]

Base = Literal["map", "copy", "auto"]
"""Where rows are read from: the file's own pages, a copy in shared memory, or what suits it."""

Residency = Literal["lazy", "populated", "locked"]
"""`lazy`: pages come when they are read; `populated`: at once; `locked`: and stay."""


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """One table of a segment.

    Attributes:
        name: unlike those of the others.
        dim: numbers per row.
        row_type: how they are kept.
        keys: kind of keys.
        rows: distinct keys.
        groups: cache lines of its index; 0 for dense ids.
        rows_offset: where its encoded rows begin in the file, in bytes; `row_stride` apart.
        keys_offset: where its keys begin, uint64 in the order of the rows; 0 for dense ids.
    """

    name: str
    dim: int
    row_type: RowType
    keys: KeyKind
    rows: int
    groups: int
    rows_offset: int
    keys_offset: int


@dataclass(frozen=True, slots=True)
class Probes:
    """Cache lines of an index that finding a key looks at.

    Attributes:
        mean: over all keys.
        most: of any key.
    """

    mean: float
    most: int


class Segment:
    """A segment that is open; immutable, for any thread.

    The memory is given back when nothing refers to it any more, generations and plans included.

    Attributes:
        model_version: as the builder was told.
        format: version of the file format.
        bytes: size of the file.
        tables: in their order.
        memory_fd: descriptor of the copy, which other processes `map`; closed with the segment.
            None where there is none.
    """

    def __init__(self, native: _native.Segment, memory: _native.Segment | None = None) -> None:
        """Wrap what `open` or `map` made; `memory` is the copy, if there is one."""
        self.native = native
        self._memory = memory
        self.model_version = native.model_version
        self.format = native.format
        self.bytes = native.bytes
        self.tables = tuple(SegmentTable(*table) for table in native.tables())
        self.memory_fd = None if memory is None else memory.memory_fd

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        base: Base = "map",
        residency: Residency = "lazy",
        available_bytes: int | None = None,
    ) -> Self:
        """Open a file; checks its header and that all its sections are there, not their checksums.

        Args:
            path: the file, which nobody may cut or write to while it is mapped.
            base: `auto` is what `suited_base` says.
            residency: of what is mapped; a copy is populated at least.
            available_bytes: memory that is left; None where that is not known.

        Raises:
            Corrupt: it is damaged; names the section.
            Unsupported: its format is newer, or its byte order another.
            OSError: it cannot be opened, mapped, copied or locked.
        """
        if base == "auto":
            base = suited_base(path, available_bytes)
        fd = _opened(path)
        try:
            if base == "map":
                return cls.map(fd, residency=residency)
            copy = _native.Segment.copy(fd)
        finally:
            os.close(fd)
        if residency != "locked":
            return cls(copy, copy)
        return cls(_native.Segment.map(copy.memory_fd, residency), copy)

    @classmethod
    def map(cls, fd: int, *, residency: Residency = "lazy") -> Self:
        """Map what is behind a descriptor, such as another process's `memory_fd`.

        Args:
            fd: stays the caller's, and may be closed afterwards.
            residency: of the mapping.

        Raises:
            Corrupt: it is damaged; names the section.
            Unsupported: its format is newer, or its byte order another.
            OSError: it cannot be mapped or locked.
        """
        return cls(_native.Segment.map(fd, residency))

    def verify(self, progress: Callable[[int], None] | None = None) -> None:
        """Read everything and compare all checksums, without holding up other threads.

        Args:
            progress: called now and then with the bytes done; what it raises ends the reading.

        Raises:
            Corrupt: something is damaged; names section and table.
        """
        self.native.verify(progress)

    def huge_page_ratio(self) -> float:
        """Return the share of the mapped bytes that lie in huge pages; 0 where nobody tells."""
        return self.native.huge_page_ratio()

    def probes(self, table: int) -> Probes:
        """Count anew how far keys of a hashed table lie from their home.

        Raises:
            InvalidInput: there is no such table.
        """
        expect_table(table, self.tables)
        return Probes(*self.native.probes(table))


def suited_base(path: Path, available_bytes: int | None) -> Literal["map", "copy"]:
    """Return where the rows of a segment file are best read from.

    A copy is, where reading could fail later (file systems over a network or in user space), and
    where it takes at most half of `available_bytes`; None where that is not known.

    Raises:
        OSError: the file cannot be opened.
    """
    fd = _opened(path)
    try:
        fits = available_bytes is not None and 2 * os.fstat(fd).st_size <= available_bytes
        return "copy" if fits or not is_steady(fd) else "map"
    finally:
        os.close(fd)


def _opened(path: Path) -> int:
    try:
        # Without waiting: a pipe of that name would have nobody to write to it.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:  # without the path, which may be nobody's business
        raise OSError(error.errno, error.strerror) from None
