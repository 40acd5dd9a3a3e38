"""What a ranking plan says, checked against itself and its graph where rules are made of it."""

from collections.abc import Mapping

from anabranch_runtime.ranking.heads import Head
from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan

__all__ = ["check_heads", "check_routing_key", "index_of", "repeated_inputs", "score_weights"]


def index_of(plan: RankingPlan, name: str, side: str) -> int:
    """Return the place of a feature.

    Raises:
        ValueError: there is none of that name and side.
    """
    for at, feature in enumerate(plan.features):
        if feature.name == name and feature.side == side:
            return at
    raise ValueError(f"the plan has no {side} feature {name!r}")


def check_routing_key(feature: FeaturePlan) -> None:
    """Check that a feature of the user can be a routing key.

    Raises:
        ValueError: it has not one integer or string.
    """
    if feature.type == "float32" or feature.ragged is not None or feature.shape:
        raise ValueError(
            f"routing key {feature.name!r}: expected one integer or string for each user"
        )


def score_weights(plan: RankingPlan) -> Mapping[str, float]:
    """Return head -> factor or exponent, in the order of the score's terms.

    Raises:
        ValueError: heads and formula do not go together.
    """
    if len(plan.heads) != len(plan.weights) or len(set(plan.heads)) != len(plan.heads):
        raise ValueError(f"heads {plan.heads} and weights {plan.weights} do not go together")
    if not plan.heads or (plan.formula == "head" and len(plan.heads) != 1):
        raise ValueError(f"a score by {plan.formula} is not made of {len(plan.heads)} heads")
    return dict(zip(plan.heads, map(float, plan.weights), strict=True))


def repeated_inputs(plan: RankingPlan) -> tuple[str, ...]:
    """Return the inputs that the user alone fills, but that must have a row for each candidate."""
    of_candidates = {
        sink.tensor
        for feature in plan.features
        if feature.side == "candidate"
        for sink in (*feature.values, feature.lengths)
        if sink is not None
    }
    fills = enumerate(plan.tensors)
    return tuple([fill.name for at, fill in fills if at not in of_candidates and not fill.once])


def check_heads(plan: RankingPlan, heads: Mapping[str, Head]) -> None:
    """Check that the outputs of the graph are what the plan takes them for.

    Raises:
        ValueError: a head is missing, or is not one number a row where that is needed.
    """
    for name in (*plan.heads, *plan.calibration):
        if name not in heads:
            raise ValueError(f"the graph has no output {name!r}")
        if not heads[name].is_numeric:
            raise ValueError(f"output {name!r} has no numbers")
    for name in plan.heads:
        if not heads[name].may_be_single:
            raise ValueError(
                f"output {name!r} {heads[name].spec.shape_text}: a score is made of one number "
                "for each row"
            )
