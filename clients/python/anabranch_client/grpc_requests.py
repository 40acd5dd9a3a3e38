"""Calls over gRPC: the Open Inference Protocol with raw contents, and `anabranch.v1.Ranking`."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from anabranch_client.calls import Answer, Call
from anabranch_client.infer_bodies import Scores
from anabranch_client.infer_messages import decode_scores, encode_scoring
from anabranch_client.rank_messages import decode_ranking, encode_ranking
from anabranch_client.rank_options import RankOptions
from anabranch_client.rankings import Ranking
from anabranch_client.requests import ModelMetadata, Target
from anabranch_wire.errors import Internal
from anabranch_wire.oip import ModelMetadataRequest, ModelMetadataResponse, ServerReadyResponse
from anabranch_wire.services import INFERENCE, RANKING
from anabranch_wire.tensors import DATATYPES, Datatype, TensorSpec

__all__ = ["GrpcRequests"]

_INFER: Final = INFERENCE.methods["ModelInfer"].path
_METADATA: Final = INFERENCE.methods["ModelMetadata"].path
_READY: Final = INFERENCE.methods["ServerReady"].path
_RANK: Final = RANKING.methods["Rank"].path


class GrpcRequests:
    """Makes calls over gRPC. Stateless."""

    def score(
        self,
        target: Target,
        inputs: Mapping[str, NDArray[np.generic]],
        outputs: Sequence[str] | None,
    ) -> Call[Scores]:
        """Return a scoring call."""
        body = encode_scoring(target.model, target.version, inputs, outputs)

        def read(answer: Answer) -> Scores:
            return decode_scores(answer.body, target.request_id)

        return Call(_INFER, read, body, _headers(target.request_id))

    def rank(
        self, target: Target, user: object, candidates: object, options: RankOptions
    ) -> Call[Ranking]:
        """Return a ranking call."""
        body = encode_ranking(target.model, target.version, user, candidates, options)

        def read(answer: Answer) -> Ranking:
            return decode_ranking(answer.body, target.request_id)

        return Call(_RANK, read, body, _headers(target.request_id))

    def metadata(self, target: Target) -> Call[ModelMetadata]:
        """Return a call that asks what a model takes and gives."""
        message = ModelMetadataRequest(name=target.model, version=target.version)
        body = message.SerializeToString()
        return Call(_METADATA, _metadata, body, _headers(target.request_id), hedged=False)

    def ready(self, request_id: str) -> Call[bool]:
        """Return a call that asks whether a server can answer."""
        return Call(_READY, _ready, b"", _headers(request_id), hedged=False)


def _headers(request_id: str) -> dict[str, str]:
    return {"x-request-id": request_id}


def _ready(answer: Answer) -> bool:
    try:
        return bool(ServerReadyResponse.FromString(answer.body).ready)
    except DecodeError as error:
        raise Internal(f"the answer is not whether the server is ready: {error}") from None


def _metadata(answer: Answer) -> ModelMetadata:
    try:
        found = ModelMetadataResponse.FromString(answer.body)
    except DecodeError as error:
        raise Internal(f"the answer is not a model's metadata: {error}") from None
    return ModelMetadata(
        name=found.name,
        versions=tuple(found.versions),
        platform=found.platform,
        inputs=_specs(found.inputs),
        outputs=_specs(found.outputs),
    )


def _specs(tensors: Sequence[ModelMetadataResponse.TensorMetadata]) -> tuple[TensorSpec, ...]:
    for tensor in tensors:
        if tensor.datatype not in DATATYPES:
            raise Internal(f"tensor {tensor.name!r}: unknown datatype {tensor.datatype!r}")
    return tuple(
        TensorSpec(tensor.name, cast(Datatype, tensor.datatype), tuple(tensor.shape))
        for tensor in tensors
    )
