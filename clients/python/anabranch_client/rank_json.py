"""Bodies of `:rank`, the ranking call over HTTP."""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec
import numpy as np

from anabranch_client.columns import ValueColumn, read_column
from anabranch_client.frames import columns_of, plain
from anabranch_client.rank_options import RankOptions
from anabranch_client.rankings import Explanation, Missed, Ranking
from anabranch_wire.errors import Internal, InvalidInput

__all__ = ["decode_ranking", "encode_ranking"]

_ENCODE: Final = msgspec.json.Encoder(enc_hook=lambda value: _plain_scalar(value)).encode


def encode_ranking(user: object, candidates: object, options: RankOptions) -> bytes:
    """Return the body of a request.

    Lists go as they are; it is the server that looks at their values.

    Raises:
        InvalidInput: a column is of a type that has no JSON.
    """
    request: dict[str, object] = {
        "user": _texts(columns_of(user, "user")),
        "candidates": _texts(columns_of(candidates, "candidates")),
    }
    if options.top_k:
        request["top_k"] = options.top_k
    if options.outputs:
        request["outputs"] = options.outputs
    if options.explain:
        request["explain"] = True
    parameters: dict[str, object] = {}
    if options.priority:
        parameters["priority"] = options.priority
    if options.routing_key is not None:
        parameters["routing_key"] = options.routing_key
    if parameters:
        request["parameters"] = parameters
    return msgspec.json.encode(request)


def decode_ranking(body: bytes, request_id: str) -> Ranking:
    """Read the body of a successful answer.

    Raises:
        Internal: it is not what was asked for.
    """
    try:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # NaN and Infinity are bare tokens, which only `json` reads
            answer = msgspec.convert(json.loads(body), _Answer)
    except ValueError as error:
        raise Internal(f"the answer is not that of a rank call: {error}") from None
    ids = np.empty(len(answer.ids), np.object_)
    ids[:] = answer.ids
    whole = all(type(value) is int for value in answer.ids)
    try:
        return Ranking(
            ids=ids.astype(np.int64) if whole else ids,
            scores=np.array(answer.scores, np.float32),
            positions=np.array(answer.positions, np.uint32),
            outputs={k: np.array(values, np.float32) for k, values in answer.outputs.items()},
            model=answer.model_name,
            version=answer.model_version,
            delta=answer.delta,
            bad_candidates={bad.position: bad.error for bad in answer.bad_candidates},
            explanation=None if answer.explain is None else answer.explain.value(),
            request_id=request_id,
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise Internal(f"the answer is not that of a rank call: {error}") from None


class _Missed(msgspec.Struct):
    keys: int
    user: bool = False
    candidates: tuple[int, ...] = ()


class _Snapshot(msgspec.Struct):
    step: int | None = None
    event_time: float | None = None
    age_s: float | None = None


class _Explain(msgspec.Struct):
    snapshot: _Snapshot = msgspec.field(default_factory=_Snapshot)
    missed: dict[str, _Missed] = msgspec.field(default_factory=dict)
    defaulted: tuple[str, ...] = ()
    stages_ms: dict[str, float] = msgspec.field(default_factory=dict)

    def value(self) -> Explanation:
        return Explanation(
            self.snapshot.step,
            self.snapshot.event_time,
            self.snapshot.age_s,
            {name: Missed(m.keys, m.user, m.candidates) for name, m in self.missed.items()},
            self.defaulted,
            self.stages_ms,
        )


class _Bad(msgspec.Struct):
    position: int
    error: str


class _Answer(msgspec.Struct):
    model_name: str
    ids: list[int | float | str]
    scores: list[float]
    positions: list[int]
    model_version: str = ""
    delta: int = 0
    outputs: dict[str, list[object]] = msgspec.field(default_factory=dict)
    explain: _Explain | None = None
    bad_candidates: list[_Bad] = msgspec.field(default_factory=list)


def _texts(columns: Mapping[str, object]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(_text(name, value)) for name, value in columns.items()}


def _text(name: str, value: object) -> bytes:
    """Return a feature's JSON: without loss, so that a NaN is not taken for a missing value."""
    what = f"feature {name!r}"
    value = plain(value)
    column = read_column(value, what)
    given = value if column is None else _listed(column)
    try:
        try:
            text = _ENCODE(given)
            if b"null" not in text:
                return text
        except OverflowError:  # integers beyond 64 bits, which the server refuses by name
            pass
        return json.dumps(given, default=_plain_scalar, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: {error}") from None


def _listed(column: ValueColumn) -> object:
    values = column.values if isinstance(column.values, list) else column.values.tolist()
    if column.lengths is None:
        rows: Sequence[object] = values
    else:
        ends = accumulate(column.lengths.tolist(), initial=0)
        cuts = [slice(start, end) for start, end in pairwise(ends)]
        if column.weights is None:
            rows = [values[cut] for cut in cuts]
        else:
            weights = column.weights.tolist()
            rows = [{"ids": values[cut], "weights": weights[cut]} for cut in cuts]
    if column.missing is None:
        return rows
    gone = column.missing.tolist()
    return [None if is_gone else row for row, is_gone in zip(rows, gone, strict=True)]


def _plain_scalar(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"expected numbers, texts or lists of them, got {type(value).__name__}")
