"""Calibration: what a head's numbers are after training's sampling or overconfidence is undone."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import CalibrationPlan

__all__ = ["NEAREST", "calibrated", "check_calibration"]

NEAREST: Final = 1e-7
"""A probability is taken to be no nearer to 0 and 1 where its logit is needed."""


def check_calibration(head: str, plan: CalibrationPlan) -> None:
    """Check that a plan gives exactly one correction, whole.

    Raises:
        ValueError: it does not.
    """
    given = [
        plan.negative_sampling is not None,
        plan.platt is not None,
        bool(plan.isotonic_x or plan.isotonic_y),
    ]
    if sum(given) != 1:
        raise ValueError(f"calibration of {head!r}: expected one correction, found {sum(given)}")
    if len(plan.isotonic_x) != len(plan.isotonic_y):
        raise ValueError(
            f"calibration of {head!r}: {len(plan.isotonic_x)} x for {len(plan.isotonic_y)} y"
        )
    if plan.logits and plan.platt is None:
        raise ValueError(f"calibration of {head!r}: only platt takes logits")


def calibrated(plan: CalibrationPlan, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return corrected numbers of the same shape; any thread.

    NaN stays NaN. The caller sees to it that NumPy does not warn of what is no number
    (`numpy.errstate`).

    Args:
        plan: the correction.
        values: probabilities, or logits where the plan says so; stay as they are.
    """
    if plan.negative_sampling is not None:
        # He et al., "Practical Lessons from Predicting Clicks on Ads at Facebook", section 6.3
        return values / (values + (1.0 - values) / plan.negative_sampling)
    if plan.platt is not None:
        slope, intercept = plan.platt
        logits = values if plan.logits else _logits(values)
        return 1.0 / (1.0 + np.exp(-(slope * logits + intercept)))
    return np.interp(values, plan.isotonic_x, plan.isotonic_y)


def _logits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.minimum(np.maximum(values, NEAREST), 1.0 - NEAREST)
    return np.log(clipped / (1.0 - clipped))
