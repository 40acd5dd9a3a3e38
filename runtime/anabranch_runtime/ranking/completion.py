"""Candidates that are sent as ids alone, completed from the item table of the version.

What a caller sends wins over the table, column by column. An id that the table lacks leaves its
features without a value: their defaults stand in, or the candidate is at fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.feature_program import ColumnLimits, FeatureFault, FeatureProgram
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_runtime.ranking.requests import ArrayColumn, Column, Missed, WireForm

__all__ = ["Completed", "Completion", "ItemColumns"]

Columns = Sequence[Column | ArrayColumn | None]


class ItemColumns(Protocol):
    """Features of items by id; immutable, for any thread."""

    def find(self, ids: ArrayColumn) -> NDArray[np.int64]:
        """Return the row (n,) of each id, -1 where it has none."""
        ...

    def take(self, feature: str, rows: NDArray[np.int64]) -> ArrayColumn:
        """Return a feature of rows (n,), with `missing` where a row is -1."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Completed:
    """Columns of a request with what the item table had.

    Attributes:
        columns: in the plan's order.
        filled: features that the table was to fill.
        missed: ids that it lacks; None where it lacks none.
    """

    columns: Columns
    filled: frozenset[int] = frozenset()
    missed: Missed | None = None

    def faults(self, found: Sequence[FeatureFault], id_index: int) -> Sequence[FeatureFault]:
        """Return the faults of a request without those that only follow from an id's.

        Args:
            found: by feature, then by row.
            id_index: the feature that ids are.
        """
        if not found or not self.filled:
            return found
        of_ids = {fault.row for fault in found if fault.feature == id_index}
        lacking = frozenset() if self.missed is None else frozenset(self.missed.candidates)
        kept: list[FeatureFault] = []
        for fault in found:
            if fault.feature in self.filled:
                if fault.row in of_ids:  # None: the whole column
                    continue
                if fault.row in lacking:
                    text = f"{fault.text}: the item table lacks this id"
                    fault = replace(fault, text=text)
            kept.append(fault)
        return kept


class Completion:
    """What the item table of a version completes. Immutable; any thread may call it.

    Args:
        plan: of the ranking.
        program: its features.
        items: its item table; None where it has none.

    Raises:
        ValueError: the table has a feature that is the id, or none of the candidates'.
    """

    def __init__(
        self, plan: RankingPlan, program: FeatureProgram, items: ItemColumns | None
    ) -> None:
        self._program = program
        self._items = items
        self._id_index = -1
        self._filled: Mapping[int, str] = {}
        if plan.item_table is None or items is None:
            return
        positions = {
            feature.name: at
            for at, feature in enumerate(plan.features)
            if feature.side == "candidate"
        }
        for name in plan.item_table.columns:
            if name not in positions or name == plan.id:
                raise ValueError(f"the item table cannot fill feature {name!r}")
        self._id_index = positions[plan.id]
        self._filled = {positions[name]: name for name in sorted(plan.item_table.columns)}

    def complete(self, columns: Columns, form: WireForm, limits: ColumnLimits) -> Completed:
        """Return the columns of a request with those that the item table has.

        Args:
            columns: in the plan's order.
            form: of those that are bytes.
            limits: of each.

        Raises:
            TooLarge: the column of ids passes a limit.
        """
        items = self._items
        left_out = [at for at in self._filled if columns[at] is None]
        if items is None or not left_out:
            return Completed(columns)
        filled = frozenset(left_out)
        column = columns[self._id_index]
        if column is None:
            return Completed(columns, filled)
        faults: tuple[FeatureFault, ...] = ()
        if isinstance(column, ArrayColumn):
            ids = column
        else:
            ids, faults = self._program.read(self._id_index, column, form, limits)
        if any([fault.row is None for fault in faults]):
            return Completed(columns, filled)
        rows = items.find(ids)
        no_ids = [fault.row for fault in faults if fault.row is not None]
        if ids.missing is not None:
            no_ids += np.flatnonzero(ids.missing).tolist()
        lacking = np.flatnonzero(rows < 0)
        if no_ids:
            lacking = np.setdiff1d(lacking, no_ids)
            rows = rows.copy()
            rows[no_ids] = -1
        whole = list(columns)
        for at in left_out:
            whole[at] = items.take(self._filled[at], rows)
        return Completed(whole, filled, _missed(lacking))


def _missed(positions: NDArray[np.intp]) -> Missed | None:
    if not len(positions):
        return None
    return Missed(len(positions), user=False, candidates=tuple(positions.tolist()))
