"""Parquet files and Arrow IPC files with a column `key` and a list column `values`.

For int8 rows there are columns `scale` and `bias` of half floats. pyarrow is imported on use; it
comes without types, so its objects are `Any` here and nowhere else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.table_files.sources import RowChunk, rows_per_chunk
from anabranch_wire.document_fields import KeyType, RowType
from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["ARROW_SUFFIXES", "ArrowRows", "open_arrow"]

ARROW_SUFFIXES: Final = (".parquet", ".arrow", ".feather")

_KEY_TYPES: Final[dict[str, KeyType]] = {"int64": "int64", "uint64": "uint64"}
_ROW_TYPES: Final[dict[str, RowType]] = {"float": "f32", "halffloat": "f16", "int8": "int8"}
_COLUMNS: Final = frozenset(("key", "values", "scale", "bias"))
_EXPECTED: Final = (
    "expected a column key of int64 or uint64, and a column values: a list of as many float, "
    "halffloat or (with columns scale and bias of halffloat) int8 in every row"
)


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """A `RowSource` over the record batches of a file.

    Attributes:
        path: of the file.
        what: how messages name it.
        rows: rows of the file.
        dim: numbers per row.
        dtype: of the numbers.
        key_dtype: how keys are written; None where there is no column `key`.
    """

    path: Path
    what: str
    rows: int
    dim: int
    dtype: RowType
    key_dtype: KeyType | None

    def chunks(self) -> Iterator[RowChunk]:
        """Yield all rows; see `RowSource`."""
        first_row, step = 0, rows_per_chunk(self.dim, self.dtype)
        with _pyarrow(self.what):
            for batch in _batches(self.path, step):
                for begin in range(0, batch.num_rows, step):
                    part = batch.slice(begin, step)
                    yield self._chunk(part, first_row)
                    first_row += part.num_rows

    def _chunk(self, batch: Any, first_row: int) -> RowChunk:  # noqa: ANN401
        scaled = self.dtype == "int8"
        keys = None if self.key_dtype is None else self._column(batch, "key", first_row)
        return RowChunk(
            first_row,
            None if keys is None else keys.view(np.uint64),
            self._values(batch.column("values"), first_row),
            self._column(batch, "scale", first_row) if scaled else None,
            self._column(batch, "bias", first_row) if scaled else None,
        )

    def _column(self, batch: Any, name: str, first_row: int) -> NDArray[Any]:  # noqa: ANN401
        column = batch.column(name)
        if column.null_count:
            raise InvalidInput(
                f"{self.what}: row {first_row + _first_null(column)}: {name} is null"
            )
        return np.ascontiguousarray(column.to_numpy(zero_copy_only=False))

    def _values(self, column: Any, first_row: int) -> NDArray[Any]:  # noqa: ANN401
        """Return a list column as [n, dim]; every row has to have `dim` numbers."""
        if column.null_count:
            raise InvalidInput(
                f"{self.what}: row {first_row + _first_null(column)}: values is null"
            )
        lengths = _lengths(column)
        if (lengths != self.dim).any():
            at = int(np.argmax(lengths != self.dim))
            raise InvalidInput(
                f"{self.what}: row {first_row + at}: found {lengths[at]} numbers; expected "
                f"{self.dim}, as in the first row"
            )
        numbers = column.flatten()
        if numbers.null_count:
            row = first_row + _first_null(numbers) // self.dim
            raise InvalidInput(f"{self.what}: row {row}: a number is null")
        flat: NDArray[Any] = np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False))
        return flat.reshape(len(column), self.dim)


def open_arrow(path: Path, what: str) -> ArrowRows:
    """Return the rows of a Parquet or Arrow IPC file.

    Args:
        path: the file.
        what: how messages name it.

    Raises:
        InvalidInput: it is no such file, or its columns are others.
        Unavailable: it cannot be read, or pyarrow is not installed.
    """
    with _pyarrow(what):
        schema, rows = _schema(path)
        types = {field.name: field.type for field in schema}
        values = getattr(types.get("values"), "value_type", None)
        dtype = _ROW_TYPES.get(str(values))
        key = str(types.get("key", ""))
        scaled = [name for name in ("scale", "bias") if str(types.get(name)) == "halffloat"]
        if (
            dtype is None
            or ("key" in types and key not in _KEY_TYPES)
            or len(scaled) != (2 if dtype == "int8" else 0)
            or not _COLUMNS.issuperset(types)
            or len(types) != len(schema)
        ):
            found = ", ".join(f"{field.name}: {field.type}" for field in schema)[:400]
            raise InvalidInput(f"{what}: {_EXPECTED}; found {found or 'no column'}")
        dim = getattr(types["values"], "list_size", None) or _first_length(path)
    if dim < 1:
        raise InvalidInput(
            f"{what}: the file has no row, and does not tell how many numbers a row has; make "
            "values a fixed-size list"
        )
    return ArrowRows(path, what, rows, dim, dtype, _KEY_TYPES.get(key))


@contextmanager
def _pyarrow(what: str) -> Iterator[None]:
    """Turn what pyarrow raises in the block, or its absence, into our errors."""
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        raise Unavailable(
            f"{what}: reading it needs pyarrow, which is not installed: pip install pyarrow, or "
            "publish the table as safetensors"
        ) from None
    try:
        yield
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise Unavailable(f"{what}: cannot be read: {error.strerror}") from None
        text = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise InvalidInput(f"{what}: no table in Parquet or Arrow IPC: {text}") from None


def _schema(path: Path) -> tuple[Any, int]:
    """Return schema and number of rows."""
    if path.suffix == ".parquet":
        with import_module("pyarrow.parquet").ParquetFile(path) as file:
            return file.schema_arrow, file.metadata.num_rows
    with _ipc(path) as reader:
        batches = map(reader.get_batch, range(reader.num_record_batches))
        return reader.schema, sum(batch.num_rows for batch in batches)


def _batches(path: Path, rows: int) -> Iterator[Any]:
    """Yield record batches: of at most `rows` from Parquet, as they were written from Arrow IPC."""
    if path.suffix == ".parquet":
        with import_module("pyarrow.parquet").ParquetFile(path) as file:
            yield from file.iter_batches(rows, use_threads=False)
        return
    with _ipc(path) as reader:
        yield from map(reader.get_batch, range(reader.num_record_batches))


@contextmanager
def _ipc(path: Path) -> Iterator[Any]:
    """Open an Arrow IPC file; one batch at a time is read into memory, nothing is mapped."""
    arrow = import_module("pyarrow")
    with arrow.OSFile(str(path)) as file, arrow.ipc.open_file(file) as reader:
        yield reader


def _first_length(path: Path) -> int:
    """Return how many numbers the first row has; 0 where there is none."""
    for batch in _batches(path, 1):
        if batch.num_rows:
            return int(_lengths(batch.column("values").slice(0, 1))[0])
    return 0


def _lengths(column: Any) -> NDArray[np.int64]:  # noqa: ANN401
    """Return how many numbers each row of a list column without nulls has."""
    lengths = import_module("pyarrow.compute").list_value_length(column)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _first_null(column: Any) -> int:  # noqa: ANN401
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
