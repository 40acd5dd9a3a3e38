"""`POST /v2/models/M[/versions/V]/infer`: the Open Inference Protocol on the hot path."""

import re
from functools import partial

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import Protocol
from anabranch_server.http.routes import Encode
from anabranch_server.limits import Limits
from anabranch_server.oip import CallOptions, InferDecoder, InferEncoder

__all__ = ["InferRoute"]


class InferRoute:
    """The hot route of the Open Inference Protocol."""

    protocol: Protocol = "oip_http"
    path = re.compile(rb"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<selector>[^/]+))?/infer")

    def __init__(self, limits: Limits) -> None:
        self._decode = InferDecoder(limits).decode
        self._encode = InferEncoder().encode

    def decode(
        self,
        body: bytes | bytearray,
        json_bytes: int | None,
        served: ServedVersion,
        options: CallOptions,
    ) -> tuple[ScoreRequest, Encode]:
        """Return the request, and how to encode its answer.

        Raises:
            AnabranchError: as `InferDecoder.decode` says.
        """
        request, form = self._decode(body, json_bytes, served, options)
        return request, partial(self._encode, served, request.outputs, form)
