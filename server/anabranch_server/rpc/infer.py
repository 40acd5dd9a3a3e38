"""ModelInfer: tensors in, scores out."""

from functools import partial

from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import Protocol
from anabranch_server.limits import Limits
from anabranch_server.oip import CallOptions, deadline_for
from anabranch_server.rpc.encoding import ResponseEncoder
from anabranch_server.rpc.reading import OpenedRequest, RequestReader
from anabranch_server.rpc.scoring import Admitted

__all__ = ["InferExchange"]


class InferExchange:
    """The method of the Open Inference Protocol."""

    protocol: Protocol = "oip_grpc"

    def __init__(self, limits: Limits) -> None:
        self._reader = RequestReader(limits)
        self._encoder = ResponseEncoder()

    def open(self, body: bytes) -> OpenedRequest:
        """See `RequestReader.open`."""
        return self._reader.open(body)

    def admit(self, opened: OpenedRequest, served: ServedVersion, options: CallOptions) -> Admitted:
        """Read the tensors of a message; see `RequestReader.read`."""
        contents = self._reader.read(opened, served)
        request = ScoreRequest(
            inputs=contents.inputs,
            rows=contents.rows,
            outputs=contents.outputs,
            deadline=deadline_for(
                options.received,
                served.group.settings.queue,
                options.timeout_s,
                contents.timeout_s,
            ),
            priority=contents.priority or options.priority or 0,
            routing_key=(
                options.routing_key if contents.routing_key is None else contents.routing_key
            ),
        )
        return Admitted(request, partial(self._encode, opened.id))

    def _encode(self, sent_id: str, ticket: Ticket) -> bytes:
        assert ticket.outputs is not None
        return self._encoder.encode(ticket.version, sent_id, ticket.request.outputs, ticket.outputs)
