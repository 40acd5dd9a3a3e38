"""Comparing what runs in place of a model with the original, users of merged requests among it."""

from collections.abc import Sequence

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.parity.cases import (
    CutLookups,
    ParityCase,
    joined,
    one_user_requests,
    parity_cases,
)
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport, Run, compare
from anabranch_model_store.cut_trials import CutTrial
from anabranch_runtime.models import RowLayout

__all__ = ["compare_cut"]


def compare_cut(
    lookups: CutLookups,
    trial: CutTrial,
    original: Run,
    source: ExampleInputs,
    given: Sequence[ParityCase],
    rows: RowLayout,
    budget: ParityBudget,
) -> ParityReport:
    """Compare a cut model with its original on all cases.

    Args:
        lookups: what was cut: a plan, or an optimised model.
        trial: runs the cut model.
        original: runs the original.
        source: makes up inputs of the original.
        given: recorded requests.
        rows: how rows flow through the original.
        budget: what they may differ by.
    """
    cases = parity_cases(lookups, source, given, rows.min_rows)
    report = compare(original, trial.run, cases, budget)
    if report.ok and lookups.user_inputs and rows.can_merge:
        parts = one_user_requests(source, lookups.user_inputs)
        together = ParityCase("requests of several users in one batch", joined(parts))
        merged = compare(original, lambda _: trial.run_together(parts), [together], budget)
        report = report.also(merged)
    return report
