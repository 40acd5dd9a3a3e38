"""What a ranking call answers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Explanation", "Missed", "Ranking"]


@dataclass(frozen=True, slots=True)
class Missed:
    """Keys of a feature that no row was found for.

    Attributes:
        keys: how many.
        user: whether they are the user's.
        candidates: positions of the candidates that have some; empty for a user's.
    """

    keys: int
    user: bool = False
    candidates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the numbers of an answer come from.

    Attributes:
        step: of training, of the snapshot that answered; None where its publisher named none.
        event_time: of the newest event in it, in seconds since 1970; None likewise.
        age_s: from that event to the answer; None likewise.
        missed: feature -> keys without a row.
        defaulted: features whose default stood in.
        stages_ms: stage -> how long it took.
    """

    step: int | None
    event_time: float | None
    age_s: float | None
    missed: Mapping[str, Missed]
    defaulted: tuple[str, ...]
    stages_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Candidates, best first.

    Attributes:
        ids: (k,), of the candidates: int64, or objects of type `str` where those were sent.
        scores: (k,) float32.
        positions: (k,) uint32, of the candidates as they were sent.
        outputs: head -> (k, ...) float32, of those that were asked for.
        model: name of the model that answered.
        version: its version, as text.
        delta: the newest delta in it; 0 is the version as published.
        bad_candidates: position -> why it is not ranked, where the model reports such candidates.
        explanation: None unless it was asked for.
        request_id: under which the server's logs know the call.
    """

    ids: NDArray[np.generic]
    scores: NDArray[np.float32]
    positions: NDArray[np.uint32]
    outputs: Mapping[str, NDArray[np.float32]]
    model: str
    version: str
    delta: int
    bad_candidates: Mapping[int, str]
    explanation: Explanation | None
    request_id: str

    def __len__(self) -> int:
        return len(self.scores)
