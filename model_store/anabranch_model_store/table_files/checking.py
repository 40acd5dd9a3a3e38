"""Checks of rows that only reading all of them can make."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from anabranch_model_store.table_files.sources import RowChunk, RowSource
from anabranch_wire.document_fields import RowType
from anabranch_wire.errors import InvalidInput

__all__ = ["checked_chunks"]

_OVERFLOW: Final[dict[RowType, float]] = {"f16": 65520.0, "bf16": 3.3961775e38}
"""Magnitudes from which on rounding to a short type gives infinity."""


def checked_chunks(source: RowSource, what: str, row_type: RowType) -> Iterator[RowChunk]:
    """Yield the rows of a table file, all of them numbers that the store's rows can hold.

    Args:
        source: the rows.
        what: how messages name the file.
        row_type: of the rows in the store.

    Raises:
        InvalidInput: a number is NaN or infinite, or would become it; the message names row, key
            and column. Or the file has other rows than its header says.
        Unavailable: the file cannot be read.
    """
    rows = 0
    for chunk in source.chunks():
        _check_numbers(chunk, what, row_type)
        rows += len(chunk.values)
        yield chunk
    if rows != source.rows:
        raise InvalidInput(f"{what}: expected {source.rows} rows, found {rows}; copy it again")


def _check_numbers(chunk: RowChunk, what: str, row_type: RowType) -> None:
    numbers = chunk.numbers()
    good = np.isfinite(numbers)
    reason = "the server's rows are finite; clean the table and publish it again"
    limit = _OVERFLOW.get(row_type)
    if limit is not None and good.all():
        good = np.abs(numbers) < limit
        reason = f"rows: {row_type} cannot hold it; choose f32"
    if good.all():
        return
    at, column = (int(index) for index in np.argwhere(~good)[0])
    raise InvalidInput(
        f"{what}: row {chunk.first_row + at} (key {int(chunk.row_keys()[at].view(np.int64))}), "
        f"column {column}: found {numbers[at, column]}; {reason}"
    )
