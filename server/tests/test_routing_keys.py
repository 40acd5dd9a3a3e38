"""A routing key reaches the session group from every door, in every form."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch_runtime.requests import Ticket
from anabranch_server.doors import DoorContext, Protocol
from anabranch_server.trace_context import TraceContext
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import Peer, http_door, infer_request
from anabranch_testing.rpc import failure, infer, open_door, raw_request

ROW = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)


@dataclass
class Keys(Observed):
    """Keeps the routing keys of what was scored."""

    keys: list[str | int | None] = field(default_factory=list)

    def scored(
        self,
        ticket: Ticket,
        protocol: Protocol,
        received: float,
        written: float,
        bytes_in: int,
        bytes_out: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        self.keys.append(ticket.request.routing_key)


@pytest.fixture
def observed() -> Keys:
    return Keys()


@pytest.fixture
def context(observed: Keys, tmp_path: Path) -> Iterator[DoorContext]:
    with door_context({"scale": scale_model(tmp_path)}, observed=observed) as context:
        yield context


def http_request(parameters: dict[str, Any], **headers: str) -> bytes:
    data = ROW.tobytes()
    size = {"binary_data_size": len(data)}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": size}
    text = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    return infer_request(text + data, json_bytes=len(text), headers=headers)


def test_http_takes_a_parameter_or_a_header(context: DoorContext, observed: Keys) -> None:
    by_header = {"Anabranch-Routing-Key": "user 9"}
    with http_door(context) as door, Peer(door) as peer:
        for request in (
            http_request({}),
            http_request({"routing_key": 9001}),
            http_request({"routing_key": "9001"}),
            http_request({"routing_key": 0}, **by_header),
            http_request({}, **by_header),
            http_request({}),
            infer_request(ROW.tobytes(), json_bytes=0, headers=by_header),
        ):
            assert peer.ask(request).status == 200

        twice = infer_request(b"", headers=by_header).replace(
            b"Host:", b"anabranch-routing-key: a\r\nHost:"
        )
        assert peer.ask(twice).status == 400

    assert observed.keys == [None, 9001, "9001", 0, "user 9", None, "user 9"]


def test_http_refuses_keys_of_other_types(context: DoorContext) -> None:
    with http_door(context) as door, Peer(door) as peer:
        response = peer.ask(http_request({"routing_key": 1.5}))

    assert response.status == 400
    assert b"parameters.routing_key" in response.body


def test_grpc_takes_a_parameter_or_metadata(context: DoorContext, observed: Keys) -> None:
    plain = raw_request("scale", {"x": ROW})
    number, natural, text = (raw_request("scale", {"x": ROW}) for _ in range(3))
    number.parameters["routing_key"].int64_param = -7
    natural.parameters["routing_key"].uint64_param = 2**63
    text.parameters["routing_key"].string_param = "seven"
    metadata = (("anabranch-routing-key", "nine"),)
    with open_door(context) as (_, channel):
        for request in (plain, number, natural, text):
            infer(channel, request)
        infer(channel, number, metadata=metadata)
        infer(channel, plain, metadata=metadata)
        infer(channel, plain)

        wrong = raw_request("scale", {"x": ROW})
        wrong.parameters["routing_key"].bool_param = True
        assert failure(channel, wrong)[0] == "INVALID_ARGUMENT"

    assert observed.keys == [None, -7, 2**63, "seven", -7, "nine", None]
