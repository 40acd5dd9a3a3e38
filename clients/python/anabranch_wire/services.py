"""The gRPC services that clients/proto defines, as tables of methods.

Servers register a generic handler per row, clients call by `path`; neither needs generated stubs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from google.protobuf import message_factory
from google.protobuf.message import Message

from anabranch_wire.descriptors import POOL

__all__ = ["INFERENCE", "RANKING", "Method", "Service"]


@dataclass(frozen=True, slots=True)
class Method:
    """One call of a service.

    Attributes:
        name: as in the proto file, `ModelInfer`.
        path: as on the wire, `/inference.GRPCInferenceService/ModelInfer`.
        request_class: message of a request, the same class that `oip` or `ranking` names.
        response_class: message of an answer.
        streams: whether requests and answers are streams (both or neither).
    """

    name: str
    path: str
    request_class: type[Message]
    response_class: type[Message]
    streams: bool


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    Attributes:
        name: full name, as reflection and health checks use it.
        methods: method name -> method, in the order of the proto file.
    """

    name: str
    methods: Mapping[str, Method]


def _service(name: str) -> Service:
    descriptor = POOL.FindServiceByName(name)
    methods = {
        method.name: Method(
            name=method.name,
            path=f"/{name}/{method.name}",
            request_class=message_factory.GetMessageClass(method.input_type),
            response_class=message_factory.GetMessageClass(method.output_type),
            streams=method.client_streaming,
        )
        for method in descriptor.methods
    }
    return Service(name, MappingProxyType(methods))


INFERENCE: Final = _service("inference.GRPCInferenceService")
"""Open Inference Protocol v2 with Triton's additions; messages in `anabranch_wire.oip`."""

RANKING: Final = _service("anabranch.v1.Ranking")
"""Ranking of candidates; messages in `anabranch_wire.ranking`."""
