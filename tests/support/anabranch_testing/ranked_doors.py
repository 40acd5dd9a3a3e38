"""Both ranking doors on the same requests, and their answers in one form to compare."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc
import numpy as np

from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan
from anabranch_server.doors import DoorContext
from anabranch_testing.http_doors import Peer, Response, http_door, infer_request
from anabranch_testing.rpc import open_door, trailers_of
from anabranch_wire.errors import (
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
)
from anabranch_wire.ranking import FLOAT32, INT64, Column, RankRequest, RankResponse
from anabranch_wire.services import RANKING

__all__ = ["RANK", "RankDoors", "Ranking", "Refusal", "column_of", "message_of", "rank_doors"]

RANK: Final = RANKING.methods["Rank"].path

Document = Mapping[str, Any]
"""A ranking request as JSON has it."""

_CODES: Final[Mapping[int, str]] = {
    kind.http: kind.grpc
    for kind in (InvalidInput, NotFound, TooLarge, Unsupported, Unavailable, DeadlineExceeded)
}


@dataclass(frozen=True)
class Refusal:
    """How a request failed.

    Attributes:
        code: gRPC status name; what HTTP answers with 503 is all UNAVAILABLE here.
        text: of the error.
    """

    code: str
    text: str


@dataclass(frozen=True)
class Ranking:
    """An answer of either door.

    Attributes:
        model: with its version and delta.
        id: of the request.
        ids: integers or strings; decimal strings are integers here.
        scores: best first.
        positions: in that order.
        outputs: head -> its numbers, those of vectors one after another.
        bad: position -> why.
        missed: feature -> keys, whether they are the user's, candidates.
        defaulted: features.
        fresh: step and event time.
        stages: names of stages.
    """

    model: tuple[str, str, int]
    id: str
    ids: list[int | str]
    scores: list[float]
    positions: list[int]
    outputs: dict[str, list[float]]
    bad: dict[int, str]
    missed: dict[str, tuple[int, bool, list[int]]]
    defaulted: list[str]
    fresh: tuple[int, float] | None
    stages: list[str]


class RankDoors:
    """A client of each door. Blocks until there is an answer.

    Attributes:
        peer: of HTTP.
        channel: of gRPC.
    """

    def __init__(self, peer: Peer, channel: grpc.Channel) -> None:
        self.peer = peer
        self.channel = channel

    def json(
        self,
        document: Document | bytes,
        *,
        path: str = "/v1/models/ranked:rank",
        headers: dict[str, str] | None = None,
    ) -> Response:
        """Ask over HTTP."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.peer.ask(infer_request(body, path=path, headers=headers))

    def message(
        self,
        request: RankRequest,
        *,
        timeout_s: float = 20.0,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> tuple[RankResponse, dict[str, str | bytes]]:
        """Ask over gRPC; return the answer and its trailers.

        Raises:
            grpc.RpcError: it was refused.
        """
        call = self.channel.unary_unary(
            RANK,
            request_serializer=RankRequest.SerializeToString,
            response_deserializer=RankResponse.FromString,
        )
        response, ended = call.with_call(request, timeout=timeout_s, metadata=metadata)
        return response, trailers_of(ended)

    def both(
        self, document: Document, plan: RankingPlan, model: str = "ranked", *, raw: bool = False
    ) -> tuple[Ranking | Refusal, Ranking | Refusal]:
        """Ask both for the same; return what HTTP and what gRPC answered."""
        response = self.json(document, path=f"/v1/models/{model}:rank")
        by_http = (
            _of_json(response.body)
            if response.status == 200
            else Refusal(_CODES[response.status], json.loads(response.body)["error"])
        )
        try:
            answer, _ = self.message(message_of(document, plan, model, raw=raw))
        except grpc.RpcError as error:
            return by_http, Refusal(error.code().name, error.details() or "")
        return by_http, _of_message(answer)


@contextmanager
def rank_doors(context: DoorContext, *, threads: int = 4) -> Iterator[RankDoors]:
    """Open both doors of `context`, until the block ends."""
    with (
        http_door(context) as door,
        open_door(context, threads=threads) as (_, channel),
        Peer(door) as peer,
    ):
        yield RankDoors(peer, channel)


def message_of(
    document: Document, plan: RankingPlan, model: str = "ranked", *, raw: bool = False
) -> RankRequest:
    """Return the message that says what `document` says.

    Args:
        document: of values that a Column can carry.
        plan: knows the features.
        model: to ask.
        raw: whether numbers are sent as bytes.
    """
    features = {feature.name: feature for feature in plan.features}
    parameters = document.get("parameters", {})
    request = RankRequest(
        model_name=model,
        id=document.get("id", ""),
        top_k=document.get("top_k", 0),
        outputs=document.get("outputs", []),
        explain=document.get("explain", False),
        timeout_us=parameters.get("timeout", 0),
        priority=parameters.get("priority", 0),
        routing_key=str(parameters.get("routing_key", "")),
    )
    for name, value in document.get("user", {}).items():
        column = column_of(features.get(name), [value], raw=raw)
        request.user[name].CopyFrom(column)
    for name, rows in document.get("candidates", {}).items():
        column = column_of(features.get(name), rows, raw=raw)
        request.candidates[name].CopyFrom(column)
    return request


def column_of(feature: FeaturePlan | None, rows: list[Any], *, raw: bool = False) -> Column:
    """Return the column of values as JSON has them; one of an unknown feature is of integers."""
    values: list[Any] = []
    weights: list[float] = []
    lengths: list[int] = []
    for row in rows:
        if isinstance(row, dict):
            weights += row.get("weights", [])
            row = row["ids"]
        several = row if isinstance(row, list) else [row]
        values += several
        lengths.append(len(several))
    column = Column()
    kind = "int64" if feature is None else feature.type
    if kind == "string":
        column.strings.extend([value.encode() for value in values])
    elif raw:
        column.type = INT64 if kind == "int64" else FLOAT32
        dtype = "<i8" if kind == "int64" else "<f4"
        column.raw = np.array(
            [float(v) if kind == "float32" else int(v) for v in values], dtype
        ).tobytes()
    elif kind == "int64":
        column.int64s.extend([int(value) for value in values])
    else:
        column.floats.extend([float(value) for value in values])
    if feature is not None and feature.ragged is not None:
        column.lengths = np.array(lengths, "<u4").tobytes()
    if weights:
        column.weights = np.array(weights, "<f4").tobytes()
    return column


def _of_json(body: bytes) -> Ranking:
    answer = json.loads(body)
    explain = answer.get("explain")
    snapshot = {} if explain is None else explain["snapshot"]
    return Ranking(
        (answer["model_name"], answer["model_version"], answer["delta"]),
        answer.get("id", ""),
        [_plain(one) for one in answer["ids"]],
        _floats(answer["scores"]),
        answer["positions"],
        {name: _floats(_flat(rows)) for name, rows in answer.get("outputs", {}).items()},
        {one["position"]: one["error"] for one in answer.get("bad_candidates", [])},
        {
            name: (one["keys"], one.get("user", False), one.get("candidates", []))
            for name, one in ({} if explain is None else explain["missed"]).items()
        },
        [] if explain is None else explain["defaulted"],
        None if explain is None else (snapshot["step"], snapshot["event_time"]),
        [] if explain is None else sorted(explain["stages_ms"]),
    )


def _of_message(answer: RankResponse) -> Ranking:
    explain = answer.explain if answer.HasField("explain") else None
    return Ranking(
        (answer.model_name, answer.model_version, answer.delta),
        answer.id,
        _values(answer.ids),
        np.frombuffer(answer.scores, "<f4").tolist(),
        np.frombuffer(answer.positions, "<u4").tolist(),
        {
            name: np.frombuffer(column.raw, "<f4").tolist()
            for name, column in answer.outputs.items()
        },
        {one.position: one.error for one in answer.bad_candidates},
        {
            name: (one.keys, one.user, list(one.candidates))
            for name, one in ({} if explain is None else explain.missed).items()
        },
        [] if explain is None else list(explain.defaulted),
        None if explain is None else (explain.step, explain.event_time),
        [] if explain is None else sorted(explain.stages_ms),
    )


def _values(column: Column) -> list[int | str]:
    if column.raw:
        return cast(list[int | str], np.frombuffer(column.raw, "<i8").tolist())
    return [*column.int64s, *(_plain(text.decode()) for text in column.strings)]


def _plain(value: int | str) -> int | str:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def _floats(values: list[float]) -> list[float]:
    return cast(list[float], np.array(values, np.float32).tolist())


def _flat(rows: list[Any]) -> list[float]:
    return [one for row in rows for one in (row if isinstance(row, list) else [row])]
