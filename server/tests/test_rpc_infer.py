from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from anabranch_server.rpc import GrpcDoor
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.graphs import lookup_model, scale_model
from anabranch_wire.oip import ModelInferRequest, ModelInferResponse
from anabranch_wire.services import INFERENCE

ROW = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)


@pytest.fixture(scope="module")
def observed() -> Observed:
    return Observed()


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory, observed: Observed) -> Iterator[grpc.Channel]:
    folder: Path = tmp_path_factory.mktemp("models")
    models = {"scale": scale_model(folder / "scale"), "lookup": lookup_model(folder / "lookup")}
    with door_context(models, observed=observed) as context:
        door = GrpcDoor(context, "127.0.0.1:0", threads=4)
        door.start()
        with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            yield channel
        door.drain(1.0)


def infer(channel: grpc.Channel, message: ModelInferRequest) -> ModelInferResponse:
    call = channel.unary_unary(
        INFERENCE.methods["ModelInfer"].path,
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelInferResponse.FromString,
    )
    response: ModelInferResponse = call(message, timeout=20)
    return response


def test_raw_contents_are_scored(channel: grpc.Channel) -> None:
    message = ModelInferRequest(model_name="scale", id="r-1")
    message.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    message.raw_input_contents.append(ROW.tobytes())

    response = infer(channel, message)

    assert (response.model_name, response.model_version, response.id) == ("scale", "42", "r-1")
    assert response.parameters["delta"].int64_param == 17
    assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [
        ("y", "FP32", [1, 1])
    ]
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [4321.0]
