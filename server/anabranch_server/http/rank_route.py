"""`POST /v1/models/M[/versions/V|/labels/L]:rank`: ranking on the hot path."""

import re
from functools import partial

from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext, Protocol
from anabranch_server.http.routes import Asked
from anabranch_server.oip import CallOptions, Reply
from anabranch_server.ranking.admission import AdmittedRanking, RankAdmission, ranking_of
from anabranch_server.ranking.json_answers import encode_rank_json
from anabranch_server.ranking.json_requests import read_rank_json
from anabranch_wire.errors import InvalidInput

__all__ = ["RankRoute"]


class RankRoute:
    """The hot route of ranking as JSON."""

    protocol: Protocol = "rank_http"
    path = re.compile(
        rb"/v1/models/(?P<model>[^/]+?)"
        rb"(?:/versions/(?P<version>[^/]+?)|/labels/(?P<label>[^/]+?))?"
        rb"(?::|%3[Aa])rank"
    )

    def __init__(self, context: DoorContext) -> None:
        self._limits = context.limits
        self._admission = RankAdmission(context, self.protocol)

    def decode(
        self,
        body: bytes | bytearray,
        json_bytes: int | None,
        served: ServedVersion,
        options: CallOptions,
    ) -> Asked:
        """Return the request, and how to encode its answer.

        Raises:
            AnabranchError: as `read_rank_json` and `RankAdmission.admit` say.
        """
        ranking_of(served)
        if json_bytes not in (None, len(body)):
            raise InvalidInput(
                "Inference-Header-Content-Length: a ranking request has no bytes behind its JSON"
            )
        request = read_rank_json(body, self._limits)
        admitted = self._admission.admit(request, served, options)
        return Asked(
            admitted.score, partial(self._encode, admitted), is_empty=not admitted.score.rows
        )

    def _encode(self, admitted: AdmittedRanking, ticket: Ticket) -> Reply:
        return encode_rank_json(self._admission.complete(admitted, ticket))
