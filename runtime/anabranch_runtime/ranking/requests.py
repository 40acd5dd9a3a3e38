"""A ranking request as its door read it, and what its candidates came to: frozen values.

Columns stay in the form of the wire; `FeatureProgram` reads all of them in one native call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["ArrayColumn", "Column", "Missed", "RankRequest", "Ranked", "SentColumns", "WireForm"]

WireForm = Literal["json", "message"]
"""JSON text of a feature's value, or a serialised `anabranch.v1.Column`."""

Column = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, eq=False)
class ArrayColumn:
    """A column of rows that was read already; arrays without gaps, of one axis.

    Attributes:
        values: int64, float32, or for strings uint8: their UTF-8 bytes one after another.
        offsets: for strings, int64 (values + 1,): where each begins in `values`; else None.
        lengths: uint32, values of each row; None where every row has as many.
        weights: float32, one for each value; None where there are none.
        missing: uint8, 1 where a row has no value; None where all have.
    """

    values: NDArray[np.int64] | NDArray[np.float32] | NDArray[np.uint8]
    offsets: NDArray[np.int64] | None = None
    lengths: NDArray[np.uint32] | None = None
    weights: NDArray[np.float32] | None = None
    missing: NDArray[np.uint8] | None = None


SentColumns = Mapping[str, Column]
"""Feature -> its column in the form of the wire."""


@dataclass(frozen=True, slots=True, eq=False)
class RankRequest:
    """One ranking request.

    Attributes:
        form: of the columns.
        user: features of the user.
        candidates: features of candidates.
        top_k: best candidates to answer; 0 is all.
        outputs: heads to answer beside the score.
        explain: whether to say where the numbers come from.
        id: echoed; empty where there is none.
        timeout_s: the request's own limit, if any.
        priority: the request's own; 0 if none.
        routing_key: the request's own, if any.
    """

    form: WireForm
    user: SentColumns
    candidates: SentColumns
    top_k: int = 0
    outputs: tuple[str, ...] = ()
    explain: bool = False
    id: str = ""
    timeout_s: float | None = None
    priority: int = 0
    routing_key: str | int | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    """Keys of a feature that no row was found for.

    Attributes:
        keys: how many.
        user: whether they are the user's.
        candidates: positions of the candidates that have some, rising; empty for a user's.
    """

    keys: int
    user: bool
    candidates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The answer, before any wire.

    Attributes:
        positions: uint32 (k,), of the candidates as sent, best first.
        scores: float32 (k,), in that order.
        outputs: head -> float32 (k, ...), in that order.
        nan_scores: how many of all candidates have a score that is no number; they come last.
        bad: position -> why the candidate could not be scored; none of them is in `positions`.
    """

    positions: NDArray[np.uint32]
    scores: NDArray[np.float32]
    outputs: Mapping[str, NDArray[np.float32]]
    nan_scores: int = 0
    bad: Mapping[int, str] = field(default_factory=dict)
