"""`POST /v2/models/M[/versions/V]/infer`: the Open Inference Protocol on the hot path."""

import re
from functools import partial

from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import Protocol
from anabranch_server.http.routes import Asked
from anabranch_server.limits import Limits
from anabranch_server.oip import CallOptions, InferDecoder, InferEncoder, Reply, ReplyForm

__all__ = ["InferRoute"]


class InferRoute:
    """The hot route of the Open Inference Protocol."""

    protocol: Protocol = "oip_http"
    path = re.compile(rb"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<selector>[^/]+))?/infer")

    def __init__(self, limits: Limits) -> None:
        self._decode = InferDecoder(limits).decode
        self._encoder = InferEncoder()

    def decode(
        self,
        body: bytes | bytearray,
        json_bytes: int | None,
        served: ServedVersion,
        options: CallOptions,
    ) -> Asked:
        """Return the request, and how to encode its answer.

        Raises:
            AnabranchError: as `InferDecoder.decode` says.
        """
        request, form = self._decode(body, json_bytes, served, options)
        return Asked(request, partial(self._encode, form))

    def _encode(self, form: ReplyForm, ticket: Ticket) -> Reply:
        assert ticket.outputs is not None
        return self._encoder.encode(ticket.version, ticket.request.outputs, form, ticket.outputs)
