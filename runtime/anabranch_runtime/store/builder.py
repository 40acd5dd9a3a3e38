"""Writing segments: tables one after another, rows in chunks, published whole or not at all.

Invariant: memory is the index and keys of the table being written, and a few MiB.
"""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_runtime.store.integers import MOST_UINT64, expect_between
from anabranch_runtime.store.rows import (
    KeyKind,
    Keys,
    RowType,
    bf16_pieces,
    float_pieces,
    int8_pieces,
)
from anabranch_wire.errors import InvalidInput

__all__ = ["Duplicates", "SegmentBuilder", "TableBuilder"]

T = TypeVar("T")

Duplicates = Literal["refuse", "last_wins"]
"""What becomes of a key that comes twice."""


class SegmentBuilder:
    """Writes one segment file, on one thread at a time.

    A context manager: leaving it without `finish` removes what was written. After an error nothing
    more can be written; what was written is removed then.
    """

    def __init__(self, folder: Path, name: str, *, model_version: int = 0) -> None:
        """Begin the file that becomes `folder / name`.

        Args:
            folder: where it is to lie.
            name: its name there.
            model_version: kept in its header.

        Raises:
            InvalidInput: the name or the version cannot be.
            OSError: nothing can be written there.
        """
        expect_between("model_version", model_version, 0, MOST_UINT64)
        self._writer: _native.SegmentWriter | None = _native.SegmentWriter(
            os.fsencode(folder), os.fsencode(name), model_version
        )
        self._table: TableBuilder | None = None

    def table(
        self,
        name: str,
        dim: int,
        *,
        row_type: RowType = "f32",
        keys: KeyKind = "hashed",
        rows: int,
        duplicates: Duplicates = "refuse",
    ) -> "TableBuilder":
        """Begin a table; the one before it is finished.

        Args:
            name: unlike those of the other tables.
            dim: numbers per row, 1 to 1024.
            row_type: how they are kept.
            keys: kind of keys.
            rows: at most so many come; for dense ids exactly so many.
            duplicates: what becomes of a key that comes twice.

        Raises:
            InvalidInput: an argument cannot be, or the table before is short of rows.
            OSError: the disk is full, or failed.
        """

        def begin(writer: _native.SegmentWriter) -> None:
            _check_name(name)
            expect_between("dim", dim, 1, 1024)
            expect_between("rows", rows, 0, MOST_UINT64)
            writer.begin_table(name, dim, row_type, keys, rows, duplicates)

        self._work(begin)
        self._table = TableBuilder(self, row_type)
        return self._table

    def finish(self) -> int:
        """Publish the file under its name; returns its size in bytes.

        Raises:
            InvalidInput: the last table is short of rows.
            FileExistsError: the name is taken.
            OSError: the disk is full, or failed.
        """
        size_bytes = self._work(lambda writer: writer.finish())
        self.close()
        return size_bytes

    def close(self) -> None:
        """Remove what was not finished; to be called any number of times."""
        self._writer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, table: "TableBuilder", work: Callable[[_native.SegmentWriter], None]) -> None:
        """Let a table write rows, while it is the one being written."""
        if table is not self._table:
            raise RuntimeError("another table was begun: this one takes no more rows")
        self._work(work)

    def _work(self, work: Callable[[_native.SegmentWriter], T]) -> T:
        if self._writer is None:
            raise RuntimeError("the segment was finished or given up")
        try:
            return work(self._writer)
        except BaseException:  # the native writer can only be dropped now
            self.close()
            raise


class TableBuilder:
    """Takes the rows of one table in chunks, on the thread of its builder.

    For dense ids keys are None, and rows come in the order of their ids.
    """

    def __init__(self, builder: SegmentBuilder, row_type: RowType) -> None:
        """Made by `SegmentBuilder.table`."""
        self._builder = builder
        self._row_type = row_type

    def add(self, keys: Keys | None, values: NDArray[np.float32] | NDArray[np.float16]) -> None:
        """Add rows, rounded to the table's row type.

        Args:
            keys: (n,).
            values: (n, dim).

        Raises:
            InvalidInput: an array of another type or shape, a duplicate key, more rows than were
                announced, or numbers that int8 rows cannot hold.
            OSError: the disk is full, or failed.
        """
        for piece_keys, piece in float_pieces(keys, values):
            self._add(piece_keys, piece)

    def add_bf16(self, keys: Keys | None, bits: NDArray[np.uint16]) -> None:
        """Add rows of bfloat16, as the upper halves of float32; otherwise as `add`.

        Args:
            keys: (n,).
            bits: (n, dim).
        """
        for piece_keys, piece in bf16_pieces(keys, bits):
            self._add(piece_keys, piece)

    def add_int8(
        self,
        keys: Keys | None,
        values: NDArray[np.int8],
        scale: NDArray[np.float16],
        bias: NDArray[np.float16],
    ) -> None:
        """Add rows `scale * values + bias` to an int8 table, bit by bit; otherwise as `add`.

        Args:
            keys: (n,).
            values: (n, dim).
            scale: (n,), finite.
            bias: (n,), finite.
        """
        if self._row_type != "int8":
            raise InvalidInput(f"int8 rows for a table of {self._row_type} rows")
        for piece_keys, piece in int8_pieces(keys, values, scale, bias):
            self._add_encoded(piece_keys, piece)

    def _add(self, keys: Keys | None, values: NDArray[np.float32]) -> None:
        self._builder.write(self, lambda writer: writer.add(keys, values))

    def _add_encoded(self, keys: Keys | None, rows: NDArray[np.uint8]) -> None:
        self._builder.write(self, lambda writer: writer.add_encoded(keys, rows))


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise InvalidInput(f"table name {name!a} is not Unicode text") from None
