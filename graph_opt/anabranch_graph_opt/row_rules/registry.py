"""All rules: one module an operator family, one rule an operator.

An operator without a rule mixes rows, as far as anybody knows. A new rule is one function in the
module of its family and one line in that module's `RULES`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from anabranch_graph_opt.row_rules import (
    arranging,
    branches,
    contractions,
    convolutions,
    counting,
    elementwise,
    joining,
    lookups,
    loops,
    masking,
    quantizing,
    recurrent,
    reductions,
    reshaping,
    scattering,
    sequences,
    slicing,
    training,
    trees,
)
from anabranch_graph_opt.row_visit import Rule

__all__ = ["RULES"]

_FAMILIES: Final = (
    arranging,
    branches,
    contractions,
    convolutions,
    counting,
    elementwise,
    joining,
    lookups,
    loops,
    masking,
    quantizing,
    recurrent,
    reductions,
    reshaping,
    scattering,
    sequences,
    slicing,
    training,
)

RULES: Final[Mapping[tuple[str, str], Rule]] = MappingProxyType(
    {("", op): rule for family in _FAMILIES for op, rule in family.RULES.items()}
    | {("ai.onnx.ml", op): rule for op, rule in trees.RULES.items()}
)
"""(domain, operator) -> rule."""
