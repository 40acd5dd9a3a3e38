"""Generations: what readers map of a store."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_runtime.store.integers import expect_table, expect_version
from anabranch_runtime.store.rows import Keys, contiguous_keys
from anabranch_runtime.store.segments import Segment, SegmentTable

__all__ = ["Generation"]


class Generation:
    """A mapped generation over its segment; any thread and process may read beside its writer.

    Attributes:
        segment: what lies under it.
        tables: those of the segment, as they were written.
        bytes: of its memory, touched or not.
    """

    def __init__(self, native: _native.Generation, segment: Segment) -> None:
        """Wrap what `map` or a writer made."""
        self.native = native
        self.segment = segment
        self.bytes = native.bytes

    @property
    def tables(self) -> tuple[SegmentTable, ...]:
        """Tables of the segment, as they were written."""
        return self.segment.tables

    @classmethod
    def map(cls, fd: int, segment: Segment, *, populate: bool = True) -> Self:
        """Map the memory behind a descriptor, for reading only.

        Args:
            fd: a writer's `fd`, or a copy; stays the caller's, and may be closed afterwards.
            segment: the one that the writer opened, or the same file.
            populate: bring every page that is used into memory now.

        Raises:
            Corrupt: it is damaged, or does not belong to the segment.
            Unsupported: its format is newer.
            OSError: it cannot be mapped.
        """
        return cls(_native.Generation.map(fd, segment.native, populate), segment)

    def rows(
        self, table: int, keys: Keys, version: int
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the rows (n, dim) of keys (n,) at a version, and which keys (n,) have one.

        One key after another: for operators and tests. Rows of absent keys are zeros. The version
        must be one that the writer retains.

        Raises:
            InvalidInput: there is no such table, no version can be that, or the keys are of
                another type or shape.
        """
        expect_table(table, self.tables)
        expect_version(version)
        return self.native.rows(table, contiguous_keys(keys), version)
