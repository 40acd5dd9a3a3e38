"""What scores are made of: heads of the graph, how they are put together, and their corrections."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from anabranch_graph_opt.running import Array
from anabranch_model_store.model_yaml import ModelMeaning, Score
from anabranch_runtime.ranking.plans import CalibrationPlan, RankingPlan
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

__all__ = ["ScorePlan", "calibrations", "check_scores", "score_plan"]

_PLACE: Final = "model.yaml: ranking.score"


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """See `RankingPlan`, which has the same fields."""

    heads: tuple[str, ...]
    weights: tuple[float, ...]
    formula: Literal["head", "weighted_sum", "product_of_powers"]


def score_plan(score: Score, outputs: Sequence[TensorSpec]) -> ScorePlan:
    """Return what candidates are ranked by.

    Args:
        score: of model.yaml, whose heads are outputs of the graph.
        outputs: of the graph.

    Raises:
        InvalidInput: a head has not one number for each row.
    """
    specs = {spec.name: spec for spec in outputs}
    for head in score.heads:
        spec = specs[head]
        is_single = len(spec.shape) == 1 or (len(spec.shape) == 2 and spec.shape[1] in (-1, 1))
        if not is_single or spec.datatype == "BYTES":
            raise InvalidInput(
                f"{_PLACE}: output {head!r} is {spec.datatype} {spec.shape_text}; expected one "
                "number for each row, [N] or [N, 1]"
            )
    if score.output is not None:
        return ScorePlan(score.heads, (1.0,), "head")
    summed = score.weighted_sum is not None
    factors = (score.weighted_sum if summed else score.product_of_powers) or {}
    formula: Literal["weighted_sum", "product_of_powers"] = (
        "weighted_sum" if summed else "product_of_powers"
    )
    return ScorePlan(score.heads, tuple(factors.values()), formula)


def check_scores(
    plan: RankingPlan, outputs: Sequence[TensorSpec], answers: Callable[[], Mapping[str, Array]]
) -> None:
    """Check heads whose declared shape leaves open how many numbers a row has.

    Args:
        plan: whose heads those are.
        outputs: of the graph.
        answers: runs the graph on some rows, once; only where a head is open.

    Raises:
        InvalidInput: one has not one number for each row.
    """
    is_open = {spec.name: len(spec.shape) == 2 and spec.shape[1] == -1 for spec in outputs}
    heads = [head for head in plan.heads if is_open[head]]
    found = answers() if heads else {}
    for head in heads:
        shape = found[head].shape
        if shape[1:] not in ((), (1,)):
            raise InvalidInput(
                f"{_PLACE}: output {head!r} has {shape[1]} numbers for each row; expected one"
            )


def calibrations(
    meaning: ModelMeaning, outputs: Sequence[TensorSpec]
) -> Mapping[str, CalibrationPlan]:
    """Return the corrections of heads, which are outputs of the graph.

    Raises:
        InvalidInput: one cannot be made of what its head gives.
    """
    specs = {spec.name: spec for spec in outputs}
    plans: dict[str, CalibrationPlan] = {}
    for head, calibration in meaning.calibration.items():
        place = f"model.yaml: calibration[{head!r}]"
        if specs[head].datatype == "BYTES":
            raise InvalidInput(f"{place}: the output is BYTES; expected numbers")
        declared = meaning.outputs.get(head)
        gives_logits = declared is not None and declared.kind == "logit"
        if gives_logits and calibration.platt is None:
            raise InvalidInput(
                f"{place}: outputs say that it is a logit; only platt corrects logits"
            )
        isotonic = calibration.isotonic
        plans[head] = CalibrationPlan(
            negative_sampling=calibration.negative_sampling,
            platt=calibration.platt,
            isotonic_x=() if isotonic is None else isotonic.x,
            isotonic_y=() if isotonic is None else isotonic.y,
            logits=gives_logits,
        )
    return plans
