"""Operators that behave differently in training: harmless in inference, random otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import Mixing, State
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]


def _dropout(visit: Visit) -> Sequence[State]:
    data = visit.data(0)
    if visit.has(2) and visit.flow(2).constants != (0,):
        raise Mixing("may be in training mode: it drops elements at random")
    return [data, replace(data, same=True, number=None)]


def _random(visit: Visit) -> Sequence[State]:
    raise Mixing("draws random numbers, which change with the place in the batch")


_RANDOM: Final = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {
    "Dropout": _dropout,
    **dict.fromkeys(_RANDOM, _random),
}
