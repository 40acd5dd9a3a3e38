"""Rows on the way to a comparison, in files by shares of the keys: one share fits into memory.

This is the partitioning of a hash join (Grace; Kitsuregawa et al. 1983): equal keys of both sides
meet in the same share, wherever in their files they lay.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import Unavailable

__all__ = ["RowSpill", "Rows", "record_bytes"]

Keys = NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(32)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows by rising key, each key once.

    Attributes:
        keys: (n,).
        values: (n, dim) float32.
    """

    keys: Keys
    values: NDArray[np.float32]


def record_bytes(dim: int) -> int:
    """Return what a row takes in a file."""
    return _record(dim).itemsize


class RowSpill:
    """Rows of one table at one snapshot. For one thread.

    Args:
        folder: where its files go; they begin with `name`.
        name: unlike that of others there.
        dim: numbers per row.
        shares: number of files.
    """

    def __init__(self, folder: Path, name: str, dim: int, shares: int) -> None:
        self.dim: Final = dim
        self._record: Final = _record(dim)
        self._shares: Final = shares
        self._paths: Final = [folder / f"{name}-{share}" for share in range(shares)]

    def add(self, keys: Keys, values: NDArray[np.float32] | None) -> None:
        """Add rows; of a key that comes again the last row counts.

        Args:
            keys: (n,), in their order.
            values: (n, dim); None takes the keys out.

        Raises:
            Unavailable: there is no room for them.
        """
        if not len(keys):
            return
        records = np.zeros(len(keys), self._record)
        records["key"] = keys
        if values is not None:
            records["is_there"] = True
            records["values"] = values
        if self._shares == 1:
            self._write(0, records)
            return
        share = ((keys * _GOLDEN) >> _SHIFT) % np.uint64(self._shares)
        order = np.argsort(share, kind="stable")
        ends = np.cumsum(np.bincount(share.astype(np.intp), minlength=self._shares))
        begin = 0
        for one, end in enumerate(ends.tolist()):
            if end > begin:
                self._write(one, records[order[begin:end]])
            begin = end

    def take(self, share: int) -> Rows:
        """Return the rows of a share, and let its file go.

        Raises:
            Unavailable: it cannot be read.
        """
        path = self._paths[share]
        try:
            records = np.fromfile(path, self._record) if path.exists() else self._none()
            path.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"temporary rows cannot be read: {error.strerror}") from None
        order = np.argsort(records["key"], kind="stable")
        keys = records["key"][order]
        is_last = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
        last = order[is_last]
        last = last[records["is_there"][last]]
        return Rows(np.ascontiguousarray(records["key"][last]), records["values"][last])

    def _none(self) -> NDArray[np.void]:
        return np.empty(0, self._record)

    def _write(self, share: int, records: NDArray[np.void]) -> None:
        try:
            with self._paths[share].open("ab") as file:
                records.tofile(file)
        except OSError as error:
            reason = error.strerror or "no space left"
            raise Unavailable(
                f"temporary rows cannot be written: {reason}; set TMPDIR to a folder with room"
            ) from None


def _record(dim: int) -> np.dtype[np.void]:
    return np.dtype([("key", "<u8"), ("is_there", "?"), ("values", "<f4", (dim,))])
