"""Rank: a user and candidates in, ids in their order out."""

from functools import partial

import msgspec

from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext, Protocol
from anabranch_server.oip import CallOptions
from anabranch_server.ranking.admission import AdmittedRanking, RankAdmission, ranking_of
from anabranch_server.ranking.message_answers import encode_rank_message
from anabranch_server.ranking.messages import MessageOutside, parse_outside, request_of
from anabranch_server.rpc.envelope import check_envelope
from anabranch_server.rpc.scoring import Admitted

__all__ = ["OpenedRanking", "RankExchange"]


class OpenedRanking(msgspec.Struct, frozen=True, gc=False):
    """A message of which only the outside was looked at.

    Attributes:
        model: model name as sent.
        selector: version or label as sent.
        message: parsed but for its columns.
    """

    model: str
    selector: str
    message: MessageOutside


class RankExchange:
    """The method of `anabranch.v1.Ranking`."""

    protocol: Protocol = "rank_grpc"

    def __init__(self, context: DoorContext) -> None:
        self._limits = context.limits
        self._admission = RankAdmission(context, self.protocol)

    def open(self, body: bytes) -> OpenedRanking:
        """Find out which model `body` is for.

        Raises:
            InvalidInput: it is no RankRequest.
            TooLarge: it has too many fields to be one.
        """
        check_envelope(body, self._limits, "features and outputs")
        message = parse_outside(body)
        return OpenedRanking(message.model_name, message.model_version, message)

    def admit(self, opened: OpenedRanking, served: ServedVersion, options: CallOptions) -> Admitted:
        """Make the graph's inputs of a message; see `RankAdmission.admit`."""
        ranking_of(served)
        admitted = self._admission.admit(request_of(opened.message), served, options)
        return Admitted(
            admitted.score, partial(self._encode, admitted), is_empty=not admitted.score.rows
        )

    def _encode(self, admitted: AdmittedRanking, ticket: Ticket) -> bytes:
        return encode_rank_message(self._admission.complete(admitted, ticket))
