"""Whether every answer was that of the trainer at the point that the answer names."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from open_bandit.live.replay import Published
from open_bandit.live.visitors import Answer, Point

__all__ = ["Proof", "prove"]

_TOLERANCE: Final = 1e-6
"""Difference between two programs' sums in float32; scores are near 0.005."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found.

    Attributes:
        answers: how many were compared.
        difference: largest one between a served and the trainer's score.
        backwards: answers of an earlier point than the answer before.
        misdated: answers whose step or newest impression is not that of their point.
    """

    answers: int
    difference: float
    backwards: int
    misdated: int

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return self.difference <= _TOLERANCE and not self.backwards and not self.misdated


def prove(
    answers: Sequence[Answer], before: NDArray[np.float32], published: Sequence[Published]
) -> Proof:
    """Compare answers with what the trainer says.

    Args:
        answers: in order of time.
        before: (users, 80) float32; the trainer's scores of version 1 as it was found.
        published: what came after it; an answer of none of these differs infinitely.
    """
    scores = {Point(1, 0): before} | {each.point: each.scores for each in published}
    facts = {each.point: (each.step, each.hour.newest) for each in published}
    differences = [
        float(np.nan_to_num(np.abs(scores[a.point][a.user] - a.scores), nan=np.inf).max())
        if a.point in scores
        else np.inf
        for a in answers
    ]
    return Proof(
        answers=len(answers),
        difference=max(differences, default=0.0),
        backwards=sum(b.point < a.point for a, b in pairwise(answers)),
        misdated=sum(
            (a.step, a.event_time) != facts.get(a.point, (a.step, a.event_time)) for a in answers
        ),
    )
