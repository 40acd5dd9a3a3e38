"""What a delta may name of the rows of a store, known without looking at any graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.faults import DeltaConflict, DeltaCorrupt
from anabranch_model_store.deltas.targets import DeltaTarget, RowChanges
from anabranch_runtime.store import Segment, SegmentTable
from anabranch_wire.weight_targets import ToTable

__all__ = ["StoreTable", "StoreTables"]

_OVERFLOW: Final[Mapping[str, float]] = {"f16": 65520.0, "bf16": 3.3961775e38, "int8": 65520.0}
"""Magnitudes from which on rounding to a short type gives infinity."""


@dataclass(frozen=True, slots=True)
class StoreTable:
    """One table of a store.

    Attributes:
        number: in the segment.
        table: what it is there.
        is_finite: whether numbers have to be finite.
    """

    number: int
    table: SegmentTable
    is_finite: bool

    def check(self, name: str, changes: RowChanges) -> None:
        """Check that rows can be changed so.

        Args:
            name: as the delta calls it.
            changes: of its rows.

        Raises:
            DeltaConflict: rows have another size, or rows of dense ids would come or go.
            DeltaCorrupt: numbers are not finite, or not as stored; names key and column.
        """
        dim = changes.values.shape[1]
        if dim != self.table.dim:
            raise DeltaConflict(
                "shape", f"table {name!r}: rows of {dim} numbers; expected {self.table.dim}"
            )
        if self.table.keys == "dense_id":
            self._check_ids(name, changes)
        if self.is_finite or self.table.row_type == "int8":
            self._check_numbers(name, changes)

    def every_row(self, name: str, weight: NDArray[np.generic]) -> RowChanges:
        """Return all rows of a table that is sent as a weight.

        Raises:
            DeltaConflict: it has another shape, or its keys are not row numbers.
        """
        shape = (self.table.rows, self.table.dim)
        if self.table.keys != "dense_id":
            raise DeltaConflict(
                "shape", f"table {name!r}: its keys are not row numbers: send rows with their keys"
            )
        if weight.shape != shape:
            raise DeltaConflict(
                "shape",
                f"weight {name!r} has shape {list(weight.shape)}; expected {list(shape)}",
            )
        keys = np.arange(len(weight), dtype=np.int64)
        return RowChanges(keys, weight.astype(np.float32), np.empty(0, np.int64))

    def _check_ids(self, name: str, changes: RowChanges) -> None:
        rows = self.table.rows
        has = f"the table has {rows} rows, and its keys are their numbers, 0 to {rows - 1}"
        if len(changes.deleted):
            raise DeltaConflict(
                "shape",
                f"table {name!r}: {len(changes.deleted)} deleted rows; {has}; a delta cannot take "
                "any out: set them to other numbers, or publish a version with the smaller table",
            )
        out = (changes.keys < 0) | (changes.keys >= rows)
        if out.any():
            key = int(changes.keys[out][0])
            raise DeltaConflict(
                "shape",
                f"table {name!r}: key {key}; {has}; a delta cannot add any: publish a version with "
                "the larger table",
            )

    def _check_numbers(self, name: str, changes: RowChanges) -> None:
        good = np.isfinite(changes.values)
        row_type = self.table.row_type
        if not good.all():
            at, column = (int(index) for index in np.argwhere(~good)[0])
            why = "rows are finite (serving.yaml: deltas.non_finite: allow lets others in)"
            if row_type == "int8":
                why = "int8 rows are finite"
        elif row_type == "f32" or not len(good):
            return
        else:
            good = _extent(changes.values, row_type) < _OVERFLOW[row_type]
            if good.all():
                return
            at, column = (int(index) for index in np.argwhere(~good)[0])
            why = f"rows: {row_type} cannot hold it"
        raise DeltaCorrupt(
            "non_finite",
            f"table {name!r}: key {changes.keys[at]}, column {column}: found "
            f"{changes.values[at, column]}; {why}",
        )


class StoreTables:
    """The tables of a store by every name that deltas may use. For any thread.

    Args:
        target: what deltas are applied to.

    Raises:
        Corrupt, Unsupported: its segment cannot be read.
        OSError: it is gone.
    """

    def __init__(self, target: DeltaTarget) -> None:
        self._by_name: dict[str, StoreTable] = {}
        self._in_graphs: frozenset[str] = frozenset()
        if target.plan is None or target.segment is None:
            return
        found = Segment.open(target.segment).tables
        numbers = {table.name: number for number, table in enumerate(found)}
        is_finite = target.deployment.deltas.non_finite == "refuse"
        indexed = tuple(
            StoreTable(numbers[table.name], found[numbers[table.name]], is_finite)
            for table in target.plan.tables
        )
        every = zip(target.plan.tables, indexed, strict=True)
        self._by_name = {table.name: one for table, one in every}
        in_graphs: set[str] = set()
        for name, places in target.plan.weights.items():
            index = next((one.index for one in places if isinstance(one, ToTable)), None)
            if index is not None:
                self._by_name[name] = indexed[index]
            if index is None or len(places) > 1:
                in_graphs.add(name)
        for name, meaning in target.meaning.tables.items():
            names = (name, *meaning.alias)
            own = next((self._by_name[each] for each in names if each in self._by_name), None)
            if own is not None:
                self._by_name = dict.fromkeys(names, own) | self._by_name
            if not in_graphs.isdisjoint(names):
                in_graphs.update(names)
        self._in_graphs = frozenset(in_graphs)

    def find(self, name: str) -> StoreTable | None:
        """Return the table that has the rows of what a name means; None where there is none."""
        return self._by_name.get(name)

    def named(self, name: str) -> StoreTable:
        """Return the table of a name that `find` knows."""
        return self._by_name[name]

    def has_all(self, name: str) -> bool:
        """Whether nothing but rows of the store is meant by a name."""
        return name in self._by_name and name not in self._in_graphs


def _extent(values: NDArray[np.float32], row_type: str) -> NDArray[np.float32]:
    """Return magnitudes that a short type must hold, (n, dim); for int8 those of scale and bias."""
    if row_type != "int8":
        return np.abs(values)
    high, low = values.max(axis=1).astype(np.float64), values.min(axis=1).astype(np.float64)
    width = (high - low) / 255
    bias = (high + low) / 2 + width / 2
    most: NDArray[np.float32] = np.maximum(np.abs(bias), width)[:, None].astype(np.float32)
    return most
