"""All features of a version, compiled: what callers sent becomes the graph's inputs in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_runtime.ranking.requests import ArrayColumn, Column, WireForm

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
        raise NotImplementedError

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
            TooLarge: a column passes a limit.
        """
        raise NotImplementedError

    def read(
        self, feature: int, column: Column, form: WireForm, limits: ColumnLimits
    ) -> tuple[ArrayColumn, tuple[FeatureFault, ...]]:
        """Return one column as it was sent, without its transform.

        Raises:
            TooLarge: it passes a limit.
        """
        raise NotImplementedError
