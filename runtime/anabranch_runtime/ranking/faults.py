"""Faults of features as callers read them: which feature, which candidate, what was expected."""

from collections.abc import Iterable, Sequence

from anabranch_runtime.ranking.feature_program import FeatureFault
from anabranch_runtime.ranking.plans import FeaturePlan
from anabranch_wire.errors import InvalidInput

__all__ = ["bad_candidates", "fault_text"]


def fault_text(feature: FeaturePlan, fault: FeatureFault) -> str:
    """Return the message for a fault of `feature`: `feature 'price', candidate 1: expected ...`."""
    if fault.row is None or feature.side == "user":
        return f"feature {feature.name!r}: {fault.text}"
    return f"feature {feature.name!r}, candidate {fault.row}: {fault.text}"


def bad_candidates(
    features: Sequence[FeaturePlan], faults: Iterable[FeatureFault], *, report: bool
) -> dict[int, str]:
    """Return which candidates are at fault: position -> message of its first fault, rising.

    Args:
        features: of the plan.
        faults: by feature, then by row.
        report: whether candidates at fault are reported; else any fault refuses the request.

    Raises:
        InvalidInput: the first fault that is not of a candidate alone; without `report`, the first.
    """
    bad: dict[int, str] = {}
    for fault in faults:
        feature = features[fault.feature]
        if not report or fault.row is None or feature.side == "user":
            raise InvalidInput(fault_text(feature, fault))
        if fault.row not in bad:
            bad[fault.row] = fault_text(feature, fault)
    return dict(sorted(bad.items()))
