"""A ranking as JSON: ids as they were sent, numbers in the shortest text that reads the same."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import json_numbers
from anabranch_runtime.ranking.requests import Column, Missed
from anabranch_server.json_documents import without_bare_tokens
from anabranch_server.oip import Reply
from anabranch_server.ranking.admission import RankAnswer
from anabranch_server.ranking.explanations import Explanation
from anabranch_wire.errors import InvalidInput

__all__ = ["encode_rank_json"]

_VALUES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_json: Final = msgspec.json.encode


def encode_rank_json(answer: RankAnswer) -> Reply:
    """Return the body of an answer. Any thread."""
    snapshot, ranked, request = answer.served.snapshot, answer.ranked, answer.request
    parts = [
        b'{"model_name":%b,"model_version":"%d","delta":%d'
        % (_json(snapshot.model), snapshot.version, snapshot.delta)
    ]
    if request.id:
        parts.append(b',"id":%b' % _json(request.id))
    parts.append(
        b',"ids":%b,"scores":%b,"positions":%b'
        % (
            _picked(request.candidates[answer.id], ranked.positions),
            json_numbers.dump(ranked.scores),
            json_numbers.dump(ranked.positions),
        )
    )
    if ranked.outputs:
        heads = [b"%b:%b" % (_json(name), _nested(rows)) for name, rows in ranked.outputs.items()]
        parts.append(b',"outputs":{%b}' % b",".join(heads))
    if answer.reports_bad:
        bad = [{"position": at, "error": text} for at, text in sorted(ranked.bad.items())]
        parts.append(b',"bad_candidates":%b' % _json(bad))
    if answer.explanation is not None:
        parts.append(b',"explain":%b' % _explained(answer.explanation))
    parts.append(b"}")
    text = b"".join(parts)
    return Reply(text, [], len(text))


def _picked(column: Column, positions: NDArray[np.uint32]) -> bytes:
    """The values of a column at `positions`, as they were written."""
    if not len(positions):
        return b"[]"
    try:
        values = _VALUES.decode(column)
    except msgspec.DecodeError:
        # A candidate at fault has a bare token for its id; none of those is picked.
        text = without_bare_tokens(bytes(column))
        if text is None:
            raise InvalidInput("the ids of the candidates are no JSON array") from None
        values = _VALUES.decode(text)
    return b"[%b]" % b",".join([values[at] for at in positions.tolist()])


def _nested(rows: NDArray[np.float32]) -> bytes:
    """An array of one row each, with arrays inside for each further axis."""
    if rows.ndim == 1:
        return json_numbers.dump(rows)
    return b"[%b]" % b",".join([_nested(row) for row in rows])


def _explained(explanation: Explanation) -> bytes:
    freshness = explanation.freshness
    return _json(
        {
            "snapshot": {
                "step": freshness.step,
                "event_time": freshness.event_time,
                "age_s": explanation.age_s,
            },
            "missed": _missed(explanation.missed),
            "defaulted": explanation.defaulted,
            "stages_ms": explanation.stages_ms,
        }
    )


def _missed(missed: Mapping[str, Missed]) -> dict[str, dict[str, int | bool | Sequence[int]]]:
    return {
        name: {"keys": one.keys, "user": True}
        if one.user
        else {"keys": one.keys, "candidates": one.candidates}
        for name, one in missed.items()
    }
