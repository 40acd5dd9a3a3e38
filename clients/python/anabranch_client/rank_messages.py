"""Messages of `anabranch.v1.Ranking/Rank`, the ranking call over gRPC.

Numbers travel as raw columns. A request is put together from its parts by hand, so that an array is
copied once, into the request itself: two serialised parts of a message, one behind the other, are
the message (protobuf encoding, "last one wins").
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from anabranch_client.columns import ValueColumn, flat_values, read_column, read_rows
from anabranch_client.frames import columns_of, plain
from anabranch_client.message_bytes import Part, delimited
from anabranch_client.rank_options import RankOptions
from anabranch_client.rankings import Explanation, Missed, Ranking
from anabranch_wire.errors import Internal, InvalidInput
from anabranch_wire.ranking import FLOAT32, INT64, STRING, Column, RankRequest, RankResponse

__all__ = ["decode_ranking", "encode_ranking"]

_USER: Final = RankRequest.USER_FIELD_NUMBER
_CANDIDATES: Final = RankRequest.CANDIDATES_FIELD_NUMBER


def encode_ranking(
    model: str, version: str, user: object, candidates: object, options: RankOptions
) -> bytes:
    """Return a serialised RankRequest.

    Raises:
        InvalidInput: a column has no such form; a missing candidate's value has none.
    """
    parts: list[Part] = [
        RankRequest(
            model_name=model,
            model_version=version,
            top_k=options.top_k,
            outputs=options.outputs,
            explain=options.explain,
            priority=options.priority,
            routing_key=options.routing_key or "",
        ).SerializeToString()
    ]
    for name, value in columns_of(user, "user").items():
        column = _user_column(f"feature {name!r}", plain(value))
        if column is not None:
            parts += _entry(_USER, name, column)
    for name, value in columns_of(candidates, "candidates").items():
        what = f"feature {name!r}"
        read = plain(value)
        found = read_column(read, what)
        if found is None:
            found = read_rows(_listed(what, read), what, "candidate")
        parts += _entry(_CANDIDATES, name, _column(what, found))
    return b"".join(parts)


def decode_ranking(body: bytes, request_id: str) -> Ranking:
    """Read a serialised RankResponse; the result's arrays view its bytes.

    Raises:
        Internal: it is not what was asked for.
    """
    try:
        answer = RankResponse.FromString(body)
        scores = np.frombuffer(answer.scores, "<f4")
        outputs = {
            name: _floats(column).reshape(len(scores), -1 if len(scores) else 1)
            for name, column in answer.outputs.items()
        }
        return Ranking(
            ids=_ids(answer.ids),
            scores=scores,
            positions=np.frombuffer(answer.positions, "<u4"),
            outputs={
                name: rows[:, 0] if rows.shape[1] == 1 else rows for name, rows in outputs.items()
            },
            model=answer.model_name,
            version=answer.model_version,
            delta=answer.delta,
            bad_candidates={bad.position: bad.error for bad in answer.bad_candidates},
            explanation=_explanation(answer) if answer.HasField("explain") else None,
            request_id=request_id,
        )
    except (DecodeError, ValueError) as error:
        raise Internal(f"the answer is not that of a rank call: {error}") from None


def _explanation(answer: RankResponse) -> Explanation:
    explain = answer.explain
    return Explanation(
        explain.step or None,  # 0 is what is not there
        explain.event_time or None,
        explain.age_s if explain.event_time else None,
        {
            name: Missed(missed.keys, missed.user, tuple(missed.candidates))
            for name, missed in explain.missed.items()
        },
        tuple(explain.defaulted),
        dict(explain.stages_ms),
    )


def _ids(column: Column) -> NDArray[np.generic]:
    if column.strings:
        ids = np.empty(len(column.strings), np.object_)
        ids[:] = [text.decode() for text in column.strings]
        return ids
    if column.type == FLOAT32:
        return _floats(column)
    raw = np.frombuffer(column.raw, "<i8")
    return np.array(column.int64s, np.int64) if column.int64s else raw


def _floats(column: Column) -> NDArray[np.float32]:
    if column.floats:
        return np.array(column.floats, np.float32)
    return np.frombuffer(column.raw, "<f4")


def _listed(what: str, value: object) -> Sequence[object]:
    if isinstance(value, np.ndarray):
        return list(value.tolist())
    if isinstance(value, list | tuple):
        return value
    raise InvalidInput(f"{what}: expected one value for each candidate, got {repr(value)[:80]}")


def _user_column(what: str, value: object) -> list[Part] | None:
    """Return the parts of a user's column; None leaves it out."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        row = read_rows([value], what, "user")
        return _column(what, ValueColumn(row.values, weights=row.weights), is_user=True)
    column = read_column(value, what)
    if column is not None:
        return _column(what, column, is_user=True)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    values = list(value) if isinstance(value, list | tuple) else [value]
    return _column(what, ValueColumn(flat_values(values, what, "value")), is_user=True)


def _column(what: str, column: ValueColumn, *, is_user: bool = False) -> list[Part]:
    if column.missing is not None and column.missing.any():
        row = int(np.argmax(column.missing))
        raise InvalidInput(
            f"{what}, candidate {row}: it is missing, which the gRPC form cannot say: fill it in, "
            "leave the whole feature out, or use HTTP"
        )
    parts: list[Part]
    values = column.values
    if isinstance(values, list):
        try:
            texts = [text.encode() for text in values]
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{what}: expected text, got {error.object!r}") from None
        parts = [Column(type=STRING, strings=texts).SerializeToString()]
    else:
        kind = INT64 if values.dtype.kind == "i" else FLOAT32
        with np.errstate(over="ignore"):
            packed = np.ascontiguousarray(values, "<i8" if kind == INT64 else "<f4")
        if values.dtype.itemsize > packed.dtype.itemsize:
            _check_narrowed(what, column, values, packed, is_user=is_user)
        parts = []
        if values.size:  # what is empty is of any type
            parts += [Column(type=kind).SerializeToString()]
            parts += delimited(Column.RAW_FIELD_NUMBER, [_bytes(packed)])
    if column.lengths is not None:
        lengths = np.ascontiguousarray(column.lengths, "<u4")
        parts += delimited(Column.LENGTHS_FIELD_NUMBER, [_bytes(lengths)])
    if column.weights is not None:
        weights = np.ascontiguousarray(column.weights, "<f4")
        parts += delimited(Column.WEIGHTS_FIELD_NUMBER, [_bytes(weights)])
    return parts


def _check_narrowed(
    what: str,
    column: ValueColumn,
    values: NDArray[np.int64] | NDArray[np.float32] | NDArray[np.float64],
    packed: NDArray[np.int64] | NDArray[np.float32],
    *,
    is_user: bool,
) -> None:
    """Check that no number became infinite as a float32; the server refuses such ones in JSON.

    Raises:
        InvalidInput: one did; names its candidate.
    """
    beyond = (np.isinf(packed) & np.isfinite(values)).reshape(-1)
    if not beyond.any():
        return
    at = int(np.argmax(beyond))
    if column.lengths is None:
        row = at * len(values) // len(beyond)
    else:
        row = int(np.searchsorted(np.cumsum(column.lengths), at, side="right"))
    place = what if is_user else f"{what}, candidate {row}"
    found = values.reshape(-1)[at]
    raise InvalidInput(f"{place}: expected a number that fits float32, got {found}")


def _bytes(array: NDArray[np.generic]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _entry(field: int, name: str, column: list[Part]) -> list[Part]:
    return delimited(field, [*delimited(1, [name.encode()]), *delimited(2, column)])
