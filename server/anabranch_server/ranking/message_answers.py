"""A ranking as a RankResponse: numbers raw, ids in a Column of the form that was sent."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.requests import Column as SentColumn
from anabranch_server.ranking.admission import RankAnswer
from anabranch_server.ranking.explanations import Explanation
from anabranch_server.ranking.messages import parse_column
from anabranch_wire.ranking import FLOAT32, INT64, Column, Explain, Missed, RankResponse
from anabranch_wire.snapshots import Snapshot

__all__ = ["encode_rank_message"]

_SNAPSHOTS: Final = 64


def encode_rank_message(answer: RankAnswer) -> bytes:
    """Return the serialised answer. Any thread."""
    ranked, request = answer.ranked, answer.request
    response = RankResponse(
        id=request.id,
        ids=_picked(request.candidates[answer.id], ranked.positions),
        scores=_raw(ranked.scores, "<f4"),
        positions=_raw(ranked.positions, "<u4"),
    )
    for name, rows in ranked.outputs.items():
        column = response.outputs[name]
        column.type = FLOAT32
        column.raw = _raw(rows, "<f4")
    for position, text in sorted(ranked.bad.items()):
        response.bad_candidates.add(position=position, error=text)
    if answer.explanation is not None:
        response.explain.CopyFrom(_explained(answer.explanation))
    # Two serialised parts of a message, one behind the other, are the message.
    return _head(answer.served.snapshot) + response.SerializeToString()


@lru_cache(maxsize=_SNAPSHOTS)
def _head(snapshot: Snapshot) -> bytes:
    head = RankResponse(
        model_name=snapshot.model, model_version=str(snapshot.version), delta=snapshot.delta
    )
    return head.SerializeToString()


def _picked(sent: SentColumn, positions: NDArray[np.uint32]) -> Column:
    """The values of a column at `positions`, in the field that they were sent in."""
    column, at = parse_column(sent), positions.tolist()
    picked = Column(type=column.type)
    if column.int64s:
        values = column.int64s
        picked.int64s.extend([values[one] for one in at])
    elif column.strings:
        strings = column.strings
        picked.strings.extend([strings[one] for one in at])
    elif column.floats:
        floats = column.floats
        picked.floats.extend([floats[one] for one in at])
    elif column.raw:
        dtype = "<i8" if column.type == INT64 else "<f4"
        picked.raw = np.frombuffer(column.raw, dtype)[positions].tobytes()
    return picked


def _raw(array: NDArray[np.generic], dtype: str) -> bytes:
    return array.astype(dtype, copy=False).tobytes()


def _explained(explanation: Explanation) -> Explain:
    freshness = explanation.freshness
    return Explain(
        step=freshness.step,
        event_time=freshness.event_time,
        age_s=explanation.age_s,
        missed={
            name: Missed(keys=one.keys, user=one.user, candidates=one.candidates)
            for name, one in explanation.missed.items()
        },
        defaulted=explanation.defaulted,
        stages_ms=explanation.stages_ms,
    )
