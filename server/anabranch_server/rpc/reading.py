"""A serialised ModelInferRequest read in two steps, as its version is chosen in between."""

from typing import Final

import msgspec

from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.rpc.decoding import parse_request, read_inputs, read_outputs
from anabranch_server.rpc.known import Contents, KnownMessage, KnownMessages, learn
from anabranch_server.rpc.parameters import read_request_parameters
from anabranch_wire.oip import ModelInferRequest

__all__ = ["OpenedRequest", "RequestReader"]


class OpenedRequest(msgspec.Struct, frozen=True, gc=False):
    """A message of which only the outside was looked at.

    Attributes:
        model: model name as sent.
        selector: version as sent.
        id: returned as it came.
        body: the message.
        form: what is known of it, or the message parsed.
    """

    model: str
    selector: str
    id: str
    body: bytes
    form: KnownMessage | ModelInferRequest


class RequestReader:
    """Reads messages under one set of limits. Safe from any thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self._known: Final = KnownMessages()

    def open(self, body: bytes) -> OpenedRequest:
        """Find out which model `body` is for.

        Raises:
            InvalidInput: it is not a ModelInferRequest.
            TooLarge: it has too many fields to be one.
        """
        known = self._known.find(body)
        if known is not None:
            return OpenedRequest(known.model, known.selector, "", body, known)
        message = parse_request(body, self._limits)
        return OpenedRequest(message.model_name, message.model_version, message.id, body, message)

    def read(self, opened: OpenedRequest, served: ServedVersion) -> Contents:
        """Read the tensors and options of a message for the version that will answer it.

        Raises:
            InvalidInput: malformed, or not what the model takes; says what was expected.
            TooLarge: a limit is passed.
            Unsupported: shared memory or classes.
        """
        form = opened.form
        if isinstance(form, KnownMessage):
            if form.rules is served.rules:
                return form.contents(opened.body)
            form = parse_request(opened.body, self._limits)
        parameters = read_request_parameters(form.parameters)
        inputs, rows = read_inputs(form, served, self._limits)
        contents = Contents(
            inputs=inputs,
            rows=rows,
            outputs=read_outputs(form, served, self._limits),
            timeout_s=parameters.timeout / 1e6 if parameters.timeout else None,
            priority=parameters.priority or 0,
            routing_key=parameters.routing_key,
        )
        known = learn(opened.body, form, served, contents)
        if known is not None:
            self._known.keep(opened.body, known)
        return contents
