"""Sequences of a user that follow his item ids, filled from the item table of the version.

A user's recent items have categories, prices, authors: one value for each id. What a caller sends
wins. A value that stands for an item that the table lacks has to be stated; without it the
sequence is at fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.completion import Columns, ItemColumns
from anabranch_runtime.ranking.feature_program import ColumnLimits, FeatureFault, FeatureProgram
from anabranch_runtime.ranking.item_keys import spans
from anabranch_runtime.ranking.plans import RaggedPlan, RankingPlan, SequencePlan
from anabranch_runtime.ranking.requests import ArrayColumn, Missed, WireForm

__all__ = ["CompletedSequences", "SequenceCompletion"]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class CompletedSequences:
    """Columns of a request with the sequences that the item table had.

    Attributes:
        columns: in the plan's order.
        ids_of: features that were left out -> the feature of their ids.
        own: what the table could not fill; of one feature one fault at most, by feature.
        missed: feature of ids -> those that count and that the table lacks.
    """

    columns: Columns
    ids_of: Mapping[int, int] = field(default_factory=dict)
    own: tuple[FeatureFault, ...] = ()
    missed: Mapping[str, Missed] = field(default_factory=dict)

    def faults(self, found: Sequence[FeatureFault]) -> Sequence[FeatureFault]:
        """Return the faults of a request with those of sequences that were to be filled.

        What only follows from a fault of the ids is left out.

        Args:
            found: by feature, then by row.
        """
        if not self.ids_of or not (found or self.own):
            return found
        at_fault = {fault.feature for fault in found}
        own = {fault.feature for fault in self.own}
        kept = [fault for fault in found if fault.feature not in own]
        kept = [
            fault for fault in (*kept, *self.own) if self.ids_of.get(fault.feature) not in at_fault
        ]
        return sorted(kept, key=lambda fault: fault.feature)  # stable: rows stay in order


class SequenceCompletion:
    """Sequences of users that the item table of a version fills. Immutable; any thread.

    Args:
        plan: of the ranking.
        program: its features.
        items: its item table; None where it has none.

    Raises:
        ValueError: one of them, or of their ids, is not a ragged feature of the user.
    """

    def __init__(
        self, plan: RankingPlan, program: FeatureProgram, items: ItemColumns | None
    ) -> None:
        self._program: Final = program
        self._items: Final = items
        self._names: Final = tuple([feature.name for feature in plan.features])
        self._of_ids: dict[int, list[tuple[int, SequencePlan]]] = {}
        self._ragged: dict[int, RaggedPlan] = {}
        if plan.item_table is None:
            return
        ragged = {
            feature.name: (at, feature.ragged)
            for at, feature in enumerate(plan.features)
            if feature.side == "user" and feature.ragged is not None
        }
        for sequence in plan.item_table.sequences:
            for name in (sequence.feature, sequence.ids):
                if name not in ragged:
                    raise ValueError(f"the item table cannot fill a sequence by feature {name!r}")
            ids, self._ragged[ids] = ragged[sequence.ids]
            self._of_ids.setdefault(ids, []).append((ragged[sequence.feature][0], sequence))

    def complete(
        self, columns: Columns, form: WireForm, limits: ColumnLimits
    ) -> CompletedSequences:
        """Return the columns of a request with the sequences that the item table has.

        Ids that were left out, or that are at fault, fill nothing.

        Args:
            columns: in the plan's order.
            form: of those that are bytes.
            limits: of each.

        Raises:
            TooLarge: a column of ids passes a limit.
        """
        if self._items is None or not self._of_ids:
            return CompletedSequences(columns)
        whole = list(columns)
        ids_of: dict[int, int] = {}
        own: list[FeatureFault] = []
        missed: dict[str, Missed] = {}
        for at, sequences in self._of_ids.items():
            left_out = [one for one in sequences if columns[one[0]] is None]
            if not left_out:
                continue
            ids_of |= {feature: at for feature, _ in left_out}
            ids = self._ids(at, columns, form, limits)
            if ids is None:
                continue
            rows = self._items.find(ids)
            counts = _kept(self._ragged[at], len(rows))
            lacking = rows < 0
            keys = int(np.count_nonzero(lacking & counts))
            if keys:
                missed[self._names[at]] = Missed(keys, user=True)
            for feature, sequence in left_out:
                taken = self._items.take(sequence.column, rows)
                gone = None if taken.missing is None else taken.missing.view(np.bool_)
                if gone is not None and sequence.missing is None and (gone & counts).any():
                    own.append(_fault(feature, sequence, gone & counts, lacking))
                whole[feature] = _sequence(taken, gone, sequence.missing)
        return CompletedSequences(whole, ids_of, tuple(own), missed)

    def _ids(
        self, at: int, columns: Columns, form: WireForm, limits: ColumnLimits
    ) -> ArrayColumn | None:
        """Return the ids of a sequence, one a row; None where there are none to look for."""
        column = columns[at]
        if column is None:
            return None
        faults: tuple[FeatureFault, ...] = ()
        if isinstance(column, ArrayColumn):
            read = column
        else:
            read, faults = self._program.read(at, column, form, limits)
        if faults or (read.missing is not None and read.missing.any()):
            return None
        return ArrayColumn(read.values, read.offsets)


def _kept(ragged: RaggedPlan, count: int) -> Flags:
    """Return which of so many values stay."""
    kept = np.zeros(count, np.bool_)
    match ragged.keep:
        case "first":
            kept[: ragged.max_length] = True
        case "last":
            kept[max(0, count - ragged.max_length) :] = True
        case _:
            kept[:] = True
    return kept


def _fault(feature: int, sequence: SequencePlan, gone: Flags, lacking: Flags) -> FeatureFault:
    at = int(np.argmax(gone))
    why = ": the item table lacks this id" if lacking[at] else ""
    text = f"expected a value for position {at} of {sequence.ids!r}, got null{why}"
    return FeatureFault(feature, 0, text)


def _sequence(
    taken: ArrayColumn, gone: Flags | None, missing: int | float | str | None
) -> ArrayColumn:
    """Return one row of values, with what stands in for those that are gone.

    Args:
        taken: a value a row, whose arrays nobody else has.
        gone: which have none; they are zero, or empty.
        missing: what stands in for them; None leaves them as they are.
    """
    values, offsets = taken.values, taken.offsets
    if gone is not None and missing is not None and gone.any():
        if offsets is None:
            values[gone] = missing
        else:
            word = np.frombuffer(str(missing).encode(), np.uint8)
            lengths = np.diff(offsets)
            lengths[gone] = len(word)
            offsets = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            texts = np.empty(int(offsets[-1]), np.uint8)
            begins = offsets[:-1]
            texts[spans(begins[~gone], lengths[~gone])] = values
            texts[spans(begins[gone], lengths[gone])] = np.tile(word, int(np.count_nonzero(gone)))
            values = texts
    count = len(values) if offsets is None else len(offsets) - 1
    return ArrayColumn(values, offsets, np.array([count], np.uint32))
