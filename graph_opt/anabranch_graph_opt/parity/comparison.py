"""Whether two models answer alike: numbers within a budget, rows in order, equal refusals."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.parity.cases import ParityCase
from anabranch_graph_opt.running import Array
from anabranch_wire.errors import AnabranchError

__all__ = ["ParityBudget", "ParityReport", "Run", "compare"]

_MAX_PAIRED: Final = 1024
"""Rows of which all pairs are compared; of more rows so many, evenly spread, stand for all."""

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes a batch; raises AnabranchError where the model refuses it."""


@dataclass(frozen=True, slots=True)
class ParityBudget:
    """How much an optimised model may differ.

    Attributes:
        max_abs_diff: of any number, for answers up to 1; larger answers may differ in proportion.
        min_rank_agreement: share of pairs of rows that keep their order, of those that differ by
            more than the budget.
    """

    max_abs_diff: float = 1e-5
    min_rank_agreement: float = 1.0


@dataclass(frozen=True, slots=True)
class ParityReport:
    """What came of a comparison.

    Attributes:
        cases: batches that were compared.
        max_abs_diff: the largest difference; inf where answers have other shapes or types.
        rank_agreement: the lowest share of pairs in the same order.
        refused: batches that both refused.
        difference: what is wrong, and with which case; "" where all is within the budget.
    """

    cases: int
    max_abs_diff: float
    rank_agreement: float
    refused: int
    difference: str

    def also(self, other: "ParityReport") -> "ParityReport":
        """Return what came of this and another comparison together."""
        return ParityReport(
            self.cases + other.cases,
            max(self.max_abs_diff, other.max_abs_diff),
            min(self.rank_agreement, other.rank_agreement),
            self.refused + other.refused,
            self.difference or other.difference,
        )

    @property
    def ok(self) -> bool:
        """Whether all is within the budget."""
        return not self.difference


def compare(
    original: Run, optimized: Run, cases: Iterable[ParityCase], budget: ParityBudget
) -> ParityReport:
    """Compare two models on all cases; the first difference is the one that is told.

    Args:
        original: computes a batch by the original.
        optimized: by what became of it.
        cases: batches of the original's inputs.
        budget: what they may differ by.
    """
    count = refused = 0
    worst, agreement = 0.0, 1.0
    difference = ""
    for case in cases:
        count += 1
        expected, found = _answer(original, case), _answer(optimized, case)
        if isinstance(expected, str) or isinstance(found, str):
            if isinstance(expected, str) and isinstance(found, str):
                refused += 1
            elif not difference:
                difference = _refusal_text(case, expected, found)
            continue
        for name, array in expected.items():
            one = _differ(array, found.get(name), budget)
            worst, agreement = max(worst, one.max_abs_diff), min(agreement, one.rank_agreement)
            if one.text and not difference:
                difference = f"{case.name}: output {name!r}: {one.text}"
    return ParityReport(count, worst, agreement, refused, difference)


@dataclass(frozen=True, slots=True)
class _Difference:
    max_abs_diff: float
    rank_agreement: float
    text: str


def _answer(run: Run, case: ParityCase) -> Mapping[str, Array] | str:
    try:
        return run(case.inputs)
    except AnabranchError as error:
        return error.message


def _refusal_text(
    case: ParityCase, expected: Mapping[str, Array] | str, found: Mapping[str, Array] | str
) -> str:
    if isinstance(expected, str):
        return f"{case.name}: the original refuses it ({expected}), the optimised model answers"
    return f"{case.name}: the original answers, the optimised model refuses it ({found})"


def _differ(expected: Array, found: Array | None, budget: ParityBudget) -> _Difference:
    if found is None:
        return _Difference(float("inf"), 0.0, "it is missing")
    if found.shape != expected.shape or found.dtype != expected.dtype:
        text = (
            f"{found.dtype} {list(found.shape)} instead of {expected.dtype} {list(expected.shape)}"
        )
        return _Difference(float("inf"), 0.0, text)
    if not expected.size:
        return _Difference(0.0, 1.0, "")
    if not np.issubdtype(expected.dtype, np.number):
        same = bool(np.array_equal(expected, found))
        return _Difference(0.0 if same else float("inf"), 1.0, "" if same else "other values")
    one, two = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(one)
    others = np.where(finite, 0, one), np.where(np.isfinite(two), 0, two)
    if not np.array_equal(*others, equal_nan=True):
        return _Difference(float("inf"), 0.0, "numbers that are not finite are in other places")
    gaps = np.abs(one[finite] - two[finite])
    widest = float(gaps.max(initial=0.0))
    allowed = budget.max_abs_diff * np.maximum(1.0, np.abs(one[finite]))
    agreement = _agreement(one, two, budget.max_abs_diff)
    text = ""
    if bool((gaps > allowed).any()):
        text = f"differs by up to {widest:.3g}, the budget is {budget.max_abs_diff:.3g}"
    elif agreement < budget.min_rank_agreement:
        text = (
            f"{agreement:.4%} of the pairs of rows keep their order, the budget is "
            f"{budget.min_rank_agreement:.4%}"
        )
    return _Difference(widest, agreement, text)


def _agreement(one: NDArray[np.float64], two: NDArray[np.float64], tie: float) -> float:
    """Share of pairs of rows in the same order, the lowest of all columns; ties do not count."""
    rows = len(one) if one.ndim else 1
    if rows < 2:
        return 1.0
    if rows > _MAX_PAIRED:  # all pairs of so many are not needed to see an order
        some = np.linspace(0, rows - 1, _MAX_PAIRED, dtype=np.int64)
        one, two, rows = one[some], two[some], _MAX_PAIRED
    lowest = 1.0
    for left, right in zip(one.reshape(rows, -1).T, two.reshape(rows, -1).T, strict=True):
        with np.errstate(invalid="ignore"):  # infinities are ties
            gaps, others = left[:, None] - left[None, :], right[:, None] - right[None, :]
            apart = np.abs(gaps) > 2 * tie * np.maximum(1.0, np.abs(left))[:, None]
            same = (gaps > 0) == (others > 0)
        pairs = int(apart.sum())
        if pairs:
            lowest = min(lowest, float((same & apart).sum()) / pairs)
    return lowest
