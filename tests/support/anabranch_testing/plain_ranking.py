"""A plain reading of how candidates are scored and ordered: numbers one by one, and `sorted`."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from anabranch_runtime.ranking.plans import CalibrationPlan, RankingPlan

__all__ = ["plain_calibrated", "plain_order", "plain_score"]


def plain_order(scores: Sequence[float], *, descending: bool) -> list[int]:
    """Positions of scores, best first: ties as they came, what is no number behind all."""

    def key(position: int) -> tuple[bool, float, int]:
        value = scores[position]
        if math.isnan(value):
            return True, 0.0, position
        return False, -value if descending else value, position

    return sorted(range(len(scores)), key=key)


def plain_calibrated(plan: CalibrationPlan | None, value: float) -> float:
    """One number of a head, corrected."""
    if plan is None or math.isnan(value):
        return value
    if plan.negative_sampling is not None:
        return _ratio(value, value + (1 - value) / plan.negative_sampling)
    if plan.platt is not None:
        slope, intercept = plan.platt
        clipped = min(max(value, 1e-7), 1 - 1e-7)
        logit = value if plan.logits else math.log(clipped / (1 - clipped))
        return _sigmoid(slope * logit + intercept)
    points = list(zip(plan.isotonic_x, plan.isotonic_y, strict=True))
    if value <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if value < x1:
            return y0 + (value - x0) * (y1 - y0) / (x1 - x0)
    return points[-1][1]


def plain_score(plan: RankingPlan, heads: Mapping[str, float]) -> float:
    """The score of a candidate by its calibrated heads."""
    values = [heads[name] for name in plan.heads]
    if plan.formula == "head":
        return values[0]
    total = 0.0 if plan.formula == "weighted_sum" else 1.0
    for value, weight in zip(values, plan.weights, strict=True):
        if plan.formula == "weighted_sum":
            total += value * weight  # infinities of both signs are no number
        else:
            total *= _power(value, weight)
    return total


def _sigmoid(z: float) -> float:
    try:
        return 1 / (1 + math.exp(-z))
    except OverflowError:
        return 0.0


def _ratio(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)
    return a / b


def _power(base: float, exponent: float) -> float:
    if base < 0 and exponent != int(exponent):
        return math.nan
    try:
        return math.pow(base, exponent)
    except ZeroDivisionError:
        return math.inf
    except ValueError:  # 0 to a negative power
        return math.copysign(math.inf, base) if exponent % 2 == 1 else math.inf
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
