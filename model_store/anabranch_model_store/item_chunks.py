"""Columns of a Parquet file, a piece at a time, as NumPy arrays of the form that a feature has.

pyarrow comes without types, so its objects are `Any` here and in `item_tables` and nowhere else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.item_layout import ItemForm, pyarrow
from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["ItemChunk", "ItemFile"]

_BYTES: Final = 1 << 20
_ROWS: Final = 1 << 16
"""Of a piece: about so many bytes, at most so many rows."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemChunk:
    """Some rows of a column, in the order of the file.

    Attributes:
        first_row: of the file.
        rows: how many.
        values: int64 or float32; for strings uint8, their UTF-8 bytes. Rows that are null have
            zeros, or nothing where they are ragged.
        counts: int64, values of each row; None where every row has `width`.
        text_bytes: int64, bytes of each value, for strings.
        weights: float32, one for each value.
        valid: bool, of each row; None where all are.
    """

    first_row: int
    rows: int
    values: NDArray[Any]
    counts: NDArray[np.int64] | None = None
    text_bytes: NDArray[np.int64] | None = None
    weights: NDArray[np.float32] | None = None
    valid: NDArray[np.bool_] | None = None


class ItemFile:
    """A Parquet file. For one thread.

    Args:
        path: of the file.
        what: how messages name it.

    Attributes:
        what: as given.
        schema: its Arrow schema.
        rows: of it.

    Raises:
        InvalidInput: it is no Parquet file.
        Unavailable: it cannot be read, or pyarrow is not installed.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.what = what
        self._path = path
        self._arrow = pyarrow(what)
        self._compute = pyarrow(what, "pyarrow.compute")
        with self._reading(), self._open() as file:
            self.schema = file.schema_arrow
            self.rows: int = file.metadata.num_rows
            self._bytes = _column_bytes(file.metadata)

    def chunks(self, column: str, form: ItemForm) -> Iterator[ItemChunk]:
        """Yield all rows of a column.

        Raises:
            InvalidInput: a value does not go into `form`; the message names column, row, found and
                expected.
            Unavailable: the file cannot be read.
        """
        each = self._bytes.get(column, 0) // max(1, self.rows)
        step = min(_ROWS, max(1, _BYTES // max(1, each)))
        first = 0
        with self._reading(), self._open() as file:
            for batch in file.iter_batches(step, columns=[column], use_threads=False):
                yield self._chunk(batch.column(column), column, form, first)
                first += batch.num_rows
        if first != self.rows:
            raise InvalidInput(f"{self.what}: column {column!r}: {first} rows of {self.rows}")

    def _chunk(self, array: Any, column: str, form: ItemForm, first: int) -> ItemChunk:  # noqa: ANN401  # pyarrow has no types
        place = _Place(self.what, column, first)
        valid = None
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        leaf, counts, weights = array, None, None
        if form.ragged or form.width != 1:
            lengths = self._compute.list_value_length(array).fill_null(0)
            counts = np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
            leaf = array.flatten()
            if not form.ragged:
                place.check_width(counts, valid, form.width)
            place.check_no_null(leaf, counts)
            if form.weighted:
                fields = dict(zip([field.name for field in leaf.type], leaf.flatten(), strict=True))
                leaf = fields["ids"]
                for field in fields.values():
                    place.check_no_null(field, counts)
                weights = place.floats(fields["weights"], counts)
        values, text_bytes = self._values(leaf, form, place, counts)
        if not form.ragged:
            if valid is not None and form.width != 1:
                wide = np.zeros((len(array), form.width), values.dtype)
                wide[valid] = values.reshape(-1, form.width)
                values = wide.ravel()
            counts = None
        return ItemChunk(first, len(array), values, counts, text_bytes, weights, valid)

    def _values(
        self,
        leaf: Any,  # noqa: ANN401  # pyarrow has no types
        form: ItemForm,
        place: "_Place",
        counts: NDArray[np.int64] | None,
    ) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        if form.type == "float32":
            return place.floats(leaf, counts), None
        if form.type == "int64":
            try:
                numbers = leaf.fill_null(0).cast(self._arrow.int64())
            except self._arrow.ArrowInvalid as error:
                raise InvalidInput(f"{place.text}: beyond 64 bits: {error}") from None
            return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64), None
        texts = leaf.cast(self._arrow.large_string()).fill_null("")
        if not len(texts):
            return np.zeros(0, np.uint8), np.zeros(0, np.int64)
        _, places, data = texts.buffers()
        offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return text[offsets[0] : offsets[-1]], np.diff(offsets)

    def _open(self) -> Any:  # noqa: ANN401  # pyarrow has no types
        parquet = pyarrow(self.what, "pyarrow.parquet")
        return parquet.ParquetFile(self._path, buffer_size=1 << 20, pre_buffer=False)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what pyarrow raises in the block into our errors."""
        try:
            yield
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise Unavailable(f"{self.what}: cannot be read: {error.strerror}") from None
            text = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise InvalidInput(f"{self.what}: no Parquet file, or a damaged one: {text}") from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a chunk is, for messages."""

    what: str
    column: str
    first_row: int

    @property
    def text(self) -> str:
        return f"{self.what}: column {self.column!r}"

    def check_width(
        self, counts: NDArray[np.int64], valid: NDArray[np.bool_] | None, width: int
    ) -> None:
        wrong = counts != width
        if valid is not None:
            wrong &= valid
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InvalidInput(
                f"{self.text}, row {self.first_row + at}: {counts[at]} values; expected {width}"
            )

    def check_no_null(self, leaf: Any, counts: NDArray[np.int64]) -> None:  # noqa: ANN401  # pyarrow has no types
        if leaf.null_count:
            value = int(np.argmax(leaf.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidInput(
                f"{self.text}, row {self._row(value, counts)}: a value in the list is null; leave "
                "it out, or make the whole row null"
            )

    def floats(self, leaf: Any, counts: NDArray[np.int64] | None) -> NDArray[np.float32]:  # noqa: ANN401  # pyarrow has no types
        """Return numbers, rounded to float32."""
        numbers = np.asarray(leaf.fill_null(0).to_numpy(zero_copy_only=False))
        with np.errstate(over="ignore"):
            found = numbers.astype(np.float32)
        beyond = np.isinf(found) & np.isfinite(numbers)
        if beyond.any():
            value = int(np.argmax(beyond))
            raise InvalidInput(
                f"{self.text}, row {self._row(value, counts)}: {numbers[value]} is beyond float32"
            )
        return np.ascontiguousarray(found)

    def _row(self, value: int, counts: NDArray[np.int64] | None) -> int:
        """Return the row of the file that a value is in."""
        if counts is None:
            return self.first_row + value
        return self.first_row + int(np.searchsorted(np.cumsum(counts), value, side="right"))


def _column_bytes(metadata: Any) -> dict[str, int]:  # noqa: ANN401  # pyarrow has no types
    """Return the bytes of each column, those below it included."""
    sizes: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        found = metadata.row_group(group)
        for index in range(found.num_columns):
            column = found.column(index)
            name = column.path_in_schema.split(".")[0]
            sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
    return sizes
