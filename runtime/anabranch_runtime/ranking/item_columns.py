"""One column of an item table: rows are taken out of mapped memory by their numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.item_keys import spans
from anabranch_runtime.ranking.item_layout import ItemForm, buffers_of
from anabranch_runtime.ranking.requests import ArrayColumn

__all__ = ["ItemColumn", "Values"]

Values = NDArray[np.int64] | NDArray[np.float32] | NDArray[np.uint8]

_TYPES: Final = {"int64": np.int64, "float32": np.float32}


@dataclass(frozen=True, slots=True, eq=False)
class ItemColumn:
    """Values of one feature for every item; views of the file. Any thread.

    Attributes:
        form: of the values.
        values: int64 or float32, `width` of a row, or of all rows one after another where they are
            ragged; for strings uint8, their UTF-8 bytes one after another.
        texts: for strings, int64: where each begins in `values`, and the end; else None.
        offsets: where ragged, int64: where each row begins among the values, and the end.
        weights: float32, one for each value, where weighted.
        validity: a bit for each row, the lowest first, 0 where it is null; None where none is.
    """

    form: ItemForm
    values: Values
    texts: NDArray[np.int64] | None = None
    offsets: NDArray[np.int64] | None = None
    weights: NDArray[np.float32] | None = None
    validity: NDArray[np.uint8] | None = None

    @classmethod
    def of(cls, column: Any, form: ItemForm) -> "ItemColumn":  # noqa: ANN401 (an Arrow array)
        """Return a view of an Arrow array that begins at its buffers' begin.

        Raises:
            ValueError: its buffers are shorter than they should be.
        """
        buffers = dict(buffers_of(column, form))
        rows = len(column)
        offsets = texts = weights = validity = None
        count = rows * form.width
        if "validity" in buffers:
            validity = _array(buffers, "validity", np.uint8, -(-rows // 8))
        if form.ragged:
            offsets = _array(buffers, "offsets", np.int64, rows + 1)
            count = int(offsets[-1])
        if form.weighted:
            weights = _array(buffers, "weights", np.float32, count)
        values: Values
        if form.type == "string":
            texts = _array(buffers, "text offsets", np.int64, count + 1)
            values = _array(buffers, "text", np.uint8, int(texts[-1]))
        else:
            values = _array(buffers, "values", _TYPES[form.type], count)
        return cls(form, values, texts, offsets, weights, validity)

    def parts(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield what it consists of by name."""
        named = {
            "validity": self.validity,
            "offsets": self.offsets,
            "weights": self.weights,
            "text offsets": self.texts,
            "text" if self.texts is not None else "values": self.values,
        }
        for name, array in named.items():
            if array is not None:
                yield name, array

    def take(self, rows: NDArray[np.int64]) -> ArrayColumn:
        """Return a copy of rows; those of -1 and those that are null are missing.

        Raises:
            IndexError: there is no such row.
        """
        missing = rows < 0
        if not missing.any():
            return self._taken(rows, None)
        if missing.all():
            return self._nothing(len(rows))
        return self._taken(np.maximum(rows, 0), missing)

    def _taken(self, rows: NDArray[np.int64], gone: NDArray[np.bool_] | None) -> ArrayColumn:
        if self.validity is not None:
            null = self.validity.take(rows >> 3) >> (rows & 7) & 1 == 0
            if null.any():
                gone = null if gone is None else gone | null
        marks = None if gone is None else gone.view(np.uint8)
        if self.offsets is None:
            return self._fixed(rows, gone, marks)
        begins = self.offsets.take(rows)
        lengths = self.offsets.take(rows + 1) - begins
        if gone is not None:
            lengths[gone] = 0
        places = spans(begins, lengths)
        values, offsets = self._picked(places)
        return ArrayColumn(
            values=values,
            offsets=offsets,
            lengths=lengths.astype(np.uint32),
            weights=None if self.weights is None else self.weights.take(places),
            missing=marks,
        )

    def _fixed(
        self,
        rows: NDArray[np.int64],
        gone: NDArray[np.bool_] | None,
        marks: NDArray[np.uint8] | None,
    ) -> ArrayColumn:
        if self.texts is not None:
            values, offsets = self._picked(rows, gone)
            return ArrayColumn(values, offsets, missing=marks)
        if self.form.width == 1:
            values = self.values.take(rows)
            if gone is not None:
                values[gone] = 0
            return ArrayColumn(values, missing=marks)
        wide = self.values.reshape(-1, self.form.width).take(rows, axis=0)
        if gone is not None:
            wide[gone] = 0
        return ArrayColumn(wide.ravel(), missing=marks)

    def _picked(
        self, places: NDArray[np.int64], gone: NDArray[np.bool_] | None = None
    ) -> tuple[Values, NDArray[np.int64] | None]:
        """Return values by their places and, for strings, where each begins."""
        if self.texts is None:
            return self.values.take(places), None
        begins = self.texts.take(places)
        lengths = self.texts.take(places + 1) - begins
        if gone is not None:
            lengths[gone] = 0
        offsets = np.zeros(len(places) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return self.values.take(spans(begins, lengths)), offsets

    def _nothing(self, count: int) -> ArrayColumn:
        """Return rows that are missing, all of them."""
        form = self.form
        is_text = form.type == "string"
        held = 0 if form.ragged else count
        kept = 0 if is_text else held * form.width
        values: NDArray[Any] = np.zeros(kept, self.values.dtype)
        return ArrayColumn(
            values=values,
            offsets=np.zeros(held + 1, np.int64) if is_text else None,
            lengths=np.zeros(count, np.uint32) if form.ragged else None,
            weights=np.zeros(0, np.float32) if form.weighted else None,
            missing=np.ones(count, np.uint8) if count else None,
        )


def _array(buffers: dict[str, Any], name: str, dtype: Any, count: int) -> NDArray[Any]:  # noqa: ANN401  # buffers of pyarrow, a dtype
    """Return the first `count` numbers of a buffer; one that is empty may be left out."""
    size = count * np.dtype(dtype).itemsize
    buffer = buffers.get(name, b"")
    found = memoryview(buffer).nbytes
    if found == 0 and count == 1:
        return np.zeros(1, dtype)  # offsets of nothing
    if count < 0 or found < size:
        raise ValueError(f"{name}: {found} bytes; expected {size}")
    return np.frombuffer(buffer, dtype, count) if count else np.zeros(0, dtype)
