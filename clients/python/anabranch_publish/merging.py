"""Several changes of one table as one: of each key the last thing that was said of it counts.

The rows stay where they are until they are written; what is held meanwhile is keys.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_publish.stored_numbers import Numbers, widen
from anabranch_wire.document_fields import KeyType
from anabranch_wire.tensor_files import Tensor

__all__ = ["MergedRows", "RowChange", "merge"]

_BLOCK_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class RowChange:
    """Rows that are set, or keys that are deleted.

    Attributes:
        keys: (n,) the 64 bits of each; a key that is there twice has its last row.
        key_dtype: as what they are written.
        rows: (n, dim) F32, F16 or BF16; None where the keys are deleted.
    """

    keys: NDArray[np.int64]
    key_dtype: KeyType
    rows: Numbers | None


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """One change that does what several did.

    Attributes:
        key_dtype: as what keys are written.
        dtype: of the rows; that of all of them, or F32.
        dim: numbers per row.
        picked: which rows of which change are left, in the order of the file; a key is there once.
        deleted: (m,) keys; none of them has a row.
    """

    key_dtype: KeyType
    dtype: str
    dim: int
    picked: tuple[tuple[RowChange, NDArray[np.int64]], ...]
    deleted: NDArray[np.int64]

    @property
    def upserts(self) -> int:
        """How many keys have a row."""
        return sum(len(indices) for _, indices in self.picked)

    def tensors(self) -> dict[str, Tensor]:
        """Return what a delta's table file holds; may be called once for each writing."""
        key_type = "U64" if self.key_dtype == "uint64" else "I64"
        found = {"keys": Tensor(key_type, (self.upserts,), self._keys())}
        if self.deleted.size:
            found["deleted"] = Tensor(key_type, self.deleted.shape, (self._typed(self.deleted),))
        found["values"] = Tensor(self.dtype, (self.upserts, self.dim), self._values())
        return found

    def _typed(self, keys: NDArray[np.int64]) -> NDArray[np.generic]:
        return keys.view(np.uint64) if self.key_dtype == "uint64" else keys

    def _keys(self) -> Iterator[NDArray[np.generic]]:
        for change, indices in self.picked:
            yield self._typed(change.keys[indices])

    def _values(self) -> Iterator[NDArray[np.generic]]:
        for change, indices in self.picked:
            assert change.rows is not None
            for start in range(0, len(indices), _BLOCK_ROWS):
                part = change.rows.array[indices[start : start + _BLOCK_ROWS]]
                yield (
                    part
                    if change.rows.dtype == self.dtype
                    else widen(Numbers(change.rows.dtype, part))
                )


def merge(changes: Sequence[RowChange], dim: int) -> MergedRows:
    """Return what changes, the oldest first, come to.

    Args:
        changes: of one table; at least one.
        dim: of every row in them.
    """
    seen: NDArray[np.int64] = np.empty(0, np.int64)
    picked: list[tuple[RowChange, NDArray[np.int64]]] = []
    deleted: list[NDArray[np.int64]] = []
    for change in reversed(changes):
        unique, backwards = np.unique(change.keys[::-1], return_index=True)
        last = len(change.keys) - 1 - backwards.astype(np.int64)
        new = ~_contains(seen, unique)
        if change.rows is None:
            deleted.append(unique[new])
        elif new.any():
            picked.append((change, np.sort(last[new])))
        # Two rising runs are merged by a stable sort in linear time.
        seen = np.sort(np.concatenate([seen, unique[new]]), kind="stable")
    told = [change for change in changes if len(change.keys)] or list(changes)
    types = {change.rows.dtype for change in changes if change.rows is not None}
    return MergedRows(
        key_dtype=told[0].key_dtype,
        dtype=types.pop() if len(types) == 1 else "F32",
        dim=dim,
        picked=tuple(reversed(picked)),
        deleted=np.concatenate(deleted) if deleted else np.empty(0, np.int64),
    )


def _contains(rising: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of `wanted` are in `rising`."""
    if not rising.size:
        return np.zeros(wanted.shape, np.bool_)
    places = np.minimum(np.searchsorted(rising, wanted), rising.size - 1)
    found: NDArray[np.bool_] = rising[places] == wanted
    return found
