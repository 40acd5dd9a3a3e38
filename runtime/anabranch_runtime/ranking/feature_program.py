"""All features of a version, compiled: what callers sent becomes the graph's inputs in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_runtime.ranking.native_features import native_feature, native_tensor
from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan
from anabranch_runtime.ranking.requests import ArrayColumn, Column, WireForm
from anabranch_runtime.sent_features import LENGTHS, WEIGHTS

__all__ = ["COUNTS", "ColumnLimits", "FeatureFault", "FeatureOutputs", "FeatureProgram"]

Array = NDArray[np.generic]

COUNTS = ("values", "defaulted", "out_of_vocabulary", "truncated", "out_of_range")
"""Columns of `FeatureOutputs.counts`; all count values, but `defaulted`, which counts rows."""


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    """What one column may hold."""

    max_rows: int
    max_values: int
    max_string_bytes: int


@dataclass(frozen=True, slots=True)
class FeatureFault:
    """Why a row of a feature cannot be used.

    Attributes:
        feature: its index.
        row: of it; None where all of the column is at fault.
        text: what was expected and what was found.
    """

    feature: int
    row: int | None
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class FeatureOutputs:
    """What the features of a request came to.

    Attributes:
        rows: candidates.
        arrays: input name -> array, as `InputRules.order` takes them: dense inputs [rows, ...] or
            [1, ...] where only the user's features fill one; and of each looked-up feature its ids,
            `.lengths` and `.weights`. Owned by whoever called; nothing else refers to them.
        counts: int64 (features, 5); see `COUNTS`.
        faults: by feature, then by row; such rows carry defaults or zeros.
    """

    rows: int
    arrays: Mapping[str, Array]
    counts: NDArray[np.int64]
    faults: tuple[FeatureFault, ...]


class FeatureProgram:
    """Compiled features of one plan. Immutable; any thread may call it.

    Args:
        plan: what to compile. Reads the files of vocabularies.

    Raises:
        Corrupt: the file of a vocabulary is not what its plan says.
        Unavailable: it cannot be read.
        ValueError: the plan contradicts itself.
    """

    def __init__(self, plan: RankingPlan) -> None:
        features = [native_feature(feature) for feature in plan.features]
        tensors = [native_tensor(fill) for fill in plan.tensors]
        self._native = _native.FeatureProgram(features, tensors)
        self._shapes = [fill.shape for fill in plan.tensors]
        # Name -> place among what the native call answers.
        self._tensors = {fill.name: place for place, fill in enumerate(plan.tensors)}
        self._keys = _key_places(plan.features, len(plan.tensors))
        if len(self._tensors) + sum(len(feature.keys) for feature in plan.features) != len(
            self._tensors.keys() | {name for feature in plan.features for name in feature.keys}
        ):
            raise ValueError("two inputs that features make have one name")

    def run(
        self,
        columns: Sequence[Column | ArrayColumn | None],
        form: WireForm,
        rows: int,
        limits: ColumnLimits,
    ) -> FeatureOutputs:
        """Return the graph's inputs for one request. Releases the GIL.

        Args:
            columns: one for each feature, in the plan's order; None where it was left out.
            form: of columns that are bytes.
            rows: candidates, where every column of theirs was left out.
            limits: of each column.

        Raises:
            TooLarge: a column passes a limit; the message names the feature.
            ValueError: there are not as many columns as features, or an `ArrayColumn` does not fit
                its feature.
        """
        found, made, counts, faults = self._native.run(columns, form, rows, _limits(limits))
        arrays: dict[str, Array] = {}
        for (name, place), shape in zip(self._tensors.items(), self._shapes, strict=True):
            arrays[name] = _shaped(made[place], shape)
        for name, place in self._keys:
            arrays[name] = _array(made[place])
        return FeatureOutputs(
            rows=found,
            arrays=arrays,
            counts=counts,
            faults=tuple([FeatureFault(*fault) for fault in faults]),
        )

    def read(
        self, feature: int, column: Column, form: WireForm, limits: ColumnLimits
    ) -> tuple[ArrayColumn, tuple[FeatureFault, ...]]:
        """Return one column as it was sent, without its transform. Releases the GIL.

        Args:
            feature: index of its feature.
            column: of a user one row, of candidates as many as it has.
            form: of it.
            limits: of it.

        Returns:
            The column, whose arrays the caller owns, and what is at fault in it. Rows at fault have
            no values where it is ragged, else zeros; of a column that is at fault as a whole
            nothing is to be used.

        Raises:
            TooLarge: it passes a limit; the message names the feature.
        """
        values, offsets, lengths, weights, missing, faults = self._native.read(
            feature, column, form, _limits(limits)
        )
        read = ArrayColumn(values, offsets, lengths, weights, missing)
        return read, tuple([FeatureFault(feature, *fault) for fault in faults])


def _limits(limits: ColumnLimits) -> _native.ColumnLimits:
    return _native.ColumnLimits(limits.max_rows, limits.max_values, limits.max_string_bytes)


def _key_places(features: Sequence[FeaturePlan], first: int) -> list[tuple[str, int]]:
    """Names of looked-up features and their parts, and where the native call answers them.

    Those of one feature that makes several keys of a value share lengths and weights.
    """
    places: list[tuple[str, int]] = []
    at = first
    for feature in features:
        if not feature.keys:
            continue
        behind = at + len(feature.keys)
        for offset, name in enumerate(feature.keys):
            places.append((name, at + offset))
            if feature.ragged is not None:
                places.append((name + LENGTHS, behind))
            if feature.weighted:
                places.append((name + WEIGHTS, behind + (feature.ragged is not None)))
        at = behind + (feature.ragged is not None) + feature.weighted
    return places


def _array(made: Array | list[bytes]) -> Array:
    assert not isinstance(made, list)  # keys are numbers
    return made


def _shaped(made: Array | list[bytes], shape: tuple[int, ...]) -> Array:
    """A tensor with the axes of its graph input; strings are objects of type `bytes`."""
    if isinstance(made, list):
        strings = np.empty(len(made), np.object_)
        strings[:] = made
        return strings.reshape(-1, *shape)
    return made if made.ndim == 1 + len(shape) == 2 else made.reshape(-1, *shape)
