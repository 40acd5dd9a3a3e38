"""Features through every front door, in every form, as often as a door may remember them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import grpc
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.settings import QueueSettings
from anabranch_server.app import create_app
from anabranch_server.doors import DoorContext
from anabranch_server.limits import Limits
from anabranch_server.oip import CallOptions, InferDecoder
from anabranch_server.rpc.known import KnownMessage
from anabranch_server.rpc.reading import RequestReader
from anabranch_testing.asgi import fetch
from anabranch_testing.doors import door_context
from anabranch_testing.http_doors import HttpDoor, Peer, http_door, infer_request
from anabranch_testing.looked_up import (
    Asked,
    key_of,
    looked_up_model,
    open_store,
    view_of,
    without,
)
from anabranch_testing.rpc import failure, infer, open_door, raw_request
from anabranch_wire.oip import InferTensorContents, ModelInferRequest
from anabranch_wire.tensors import datatype_of

PATIENT = QueueSettings(default_timeout_s=30.0)  # the machine may be busy
PATH = "/v2/models/looked/infer"

Named = Mapping[str, NDArray[np.generic]]
Send = Callable[[Named], NDArray[np.generic]]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    folder = tmp_path_factory.mktemp("models")
    writer = open_store(folder / "store")
    models = {"looked": looked_up_model(folder)}
    stores = {"looked": view_of(writer)}
    with door_context(models, stores=stores, queue=PATIENT) as context:
        yield context


@pytest.fixture(scope="module")
def door(context: DoorContext) -> Iterator[HttpDoor]:
    with http_door(context) as door:
        yield door


@pytest.fixture
def peer(door: HttpDoor) -> Iterator[Peer]:
    with Peer(door) as peer:
        yield peer


@pytest.fixture(scope="module")
def channel(context: DoorContext) -> Iterator[grpc.Channel]:
    with open_door(context) as (_, channel):
        yield channel


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(9)


def json_request(named: Named) -> bytes:
    inputs = [
        {**head(name, array), "data": array.ravel().tolist()} for name, array in named.items()
    ]
    return infer_request(json.dumps({"inputs": inputs}).encode(), path=PATH)


def binary_body(named: Named) -> tuple[bytes, int]:
    inputs = [
        {**head(name, array), "parameters": {"binary_data_size": array.nbytes}}
        for name, array in named.items()
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return text + b"".join(array.tobytes() for array in named.values()), len(text)


def binary_request(named: Named) -> bytes:
    body, json_bytes = binary_body(named)
    return infer_request(body, json_bytes=json_bytes, path=PATH)


def head(name: str, array: NDArray[np.generic]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}


def typed_request(named: Named) -> ModelInferRequest:
    fields = {"INT64": "int64_contents", "INT32": "int_contents", "FP32": "fp32_contents"}
    request = ModelInferRequest(model_name="looked")
    for name, array in named.items():
        datatype = datatype_of(array.dtype)
        contents = InferTensorContents(**{fields[datatype]: array.ravel().tolist()})
        request.inputs.add(name=name, datatype=datatype, shape=array.shape, contents=contents)
    return request


@pytest.fixture(params=["json", "binary", "raw", "typed"])
def send(request: pytest.FixtureRequest, peer: Peer, channel: grpc.Channel) -> Send:
    """Score a request in one of the forms of the protocol."""

    def send_json(named: Named) -> NDArray[np.generic]:
        response = peer.ask(json_request(named))
        assert response.status == 200, response.body
        (output,) = json.loads(response.body)["outputs"]
        return np.array(output["data"], np.float32).reshape(output["shape"])

    def send_binary(named: Named) -> NDArray[np.generic]:
        response = peer.ask(binary_request(named))
        assert response.status == 200, response.body
        size = int(response.headers["inference-header-content-length"])
        (output,) = json.loads(response.body[:size])["outputs"]
        return np.frombuffer(response.body[size:], np.float32).reshape(output["shape"])

    def send_rpc(message: ModelInferRequest) -> NDArray[np.generic]:
        response, _ = infer(channel, message)
        raw = np.frombuffer(response.raw_output_contents[0], np.float32)
        return raw.reshape(response.outputs[0].shape)

    forms: dict[str, Send] = {
        "json": send_json,
        "binary": send_binary,
        "raw": lambda named: send_rpc(raw_request("looked", named)),
        "typed": lambda named: send_rpc(typed_request(named)),
    }
    return forms[request.param]


@pytest.mark.parametrize("form", range(4))
def test_every_form_of_a_feature_is_scored(send: Send, rng: np.random.Generator, form: int) -> None:
    for rows, one_user in ((3, False), (4, True), (1, False)):
        asked = Asked.random(rng, rows, one_user=one_user)

        np.testing.assert_array_equal(send(asked.named(form)), asked.answer())


def test_requests_of_one_head_have_bags_of_their_own(send: Send) -> None:
    bags = ([[1, 2, 3], []], [[], [4, 5, 6]], [[7], [8, 9]])
    for tags in bags:
        weights = [[2.0] * len(bag) for bag in tags]
        asked = Asked([1, 2], [3, 4], tags, weights, [(1, 2), (3, 4)], [[5, 6]])

        np.testing.assert_array_equal(send(asked.named()), asked.answer())


def padded(first: int) -> tuple[Asked, Named]:
    """A request whose arrays have the same shapes for any numbers."""
    tags = [[first, first + 1], [first + 2, 500]]
    asked = Asked([1, 2], [3, 4], tags, [[1, 2], [3, 4]], [(1, 2), (first, 4)], [[5, first]])
    named = asked.named()
    for name in ("tags", "tags.weights", "clicks"):
        named[name] = named[name].reshape(-1, 2)
    del named["tags.lengths"], named["clicks.lengths"]
    return asked, named


def test_padded_features_have_values_of_their_own(send: Send) -> None:
    for first in (1, 30, 60):
        asked, named = padded(first)

        np.testing.assert_array_equal(send(named), asked.answer())


def test_a_binary_head_with_features_is_read_once_unless_they_are_flat(
    context: DoorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = context.catalog.resolve("looked")
    decoder = InferDecoder(Limits())
    options = CallOptions(received=0.0)
    bodies = [binary_body(padded(first)[1]) for first in (1, 30)]
    flat = binary_body(padded(1)[0].named())
    for body, size in (bodies[0], flat):
        decoder.decode(body, size, served, options)

    def read(*_: object) -> NoReturn:
        raise AssertionError("read again")

    monkeypatch.setattr(decoder, "_read", read)
    request, _ = decoder.decode(*bodies[1], served, options)
    with pytest.raises(AssertionError, match="read again"):
        decoder.decode(*flat, served, options)

    assert request.rows == 2
    expected, _ = served.rules.order(padded(30)[1])
    for found, wanted in zip(request.inputs, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_message_with_features_is_known_unless_they_are_flat(context: DoorContext) -> None:
    served = context.catalog.resolve("looked")
    reader = RequestReader(Limits())
    forms: list[bool] = []
    for named in (padded(1)[1], padded(30)[1], padded(1)[0].named(), padded(1)[0].named()):
        opened = reader.open(raw_request("looked", named).SerializeToString())
        forms.append(isinstance(opened.form, KnownMessage))
        contents = reader.read(opened, served)
        expected, rows = served.rules.order(named)
        assert contents.rows == rows
        for found, wanted in zip(contents.inputs, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)

    assert forms == [False, True, False, False]


def test_offsets_without_an_end_are_read_anew_too(send: Send) -> None:
    for clicks in ([[5], [6]], [[5, 6], []], [[], [5, 6]]):
        asked = Asked([1, 2], [3, 4], [[1], [2]], [[1], [1]], [(1, 2), (3, 4)], clicks)
        named = asked.named()
        del named["clicks.lengths"]
        named["clicks.offsets"] = np.array([0, len(clicks[0])])

        np.testing.assert_array_equal(send(named), asked.answer())


def test_bags_that_do_not_fit_are_refused_each_time(
    peer: Peer, channel: grpc.Channel, rng: np.random.Generator
) -> None:
    asked = Asked.random(rng, 2)
    good = asked.named()
    bad = {**good, "tags.lengths": np.array([len(asked.tags[0]) + 1, len(asked.tags[1])])}
    for named, status in ((good, 200), (bad, 400), (good, 200), (bad, 400)):
        response = peer.ask(binary_request(named))
        assert response.status == status
        if status == 400:
            assert (
                "feature 'tags': expected lengths that add up" in json.loads(response.body)["error"]
            )
            code, text = failure(channel, raw_request("looked", named))
            assert code == "INVALID_ARGUMENT"
            assert "feature 'tags'" in text
        else:
            infer(channel, raw_request("looked", named))


def test_a_key_that_must_not_be_missing_is_named(
    peer: Peer, channel: grpc.Channel, rng: np.random.Generator
) -> None:
    named = without(Asked.random(rng, 3), 2).named()

    response = peer.ask(json_request(named))
    code, text = failure(channel, raw_request("looked", named))

    assert (response.status, code) == (400, "INVALID_ARGUMENT")
    for message in (json.loads(response.body)["error"], text):
        assert "city" in message
        assert str(key_of(107)) in message


def test_a_body_of_one_tensor_carries_no_feature(peer: Peer) -> None:
    response = peer.ask(infer_request(b"\0" * 8, json_bytes=0, path=PATH))

    assert response.status == 400
    assert "expected JSON" in json.loads(response.body)["error"]


def test_metadata_and_configuration_list_features(context: DoorContext) -> None:
    app = create_app(context)

    metadata = fetch(app, "/v2/models/looked").json()
    configuration = fetch(app, "/v2/models/looked/config").json()

    assert metadata["inputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, 1]},
        {"name": "city", "datatype": "INT64", "shape": [-1, 1]},
        {"name": "tags", "datatype": "INT64", "shape": [-1]},
        {"name": "pair", "datatype": "INT64", "shape": [-1, 2]},
        {"name": "clicks", "datatype": "INT64", "shape": [-1]},
    ]
    assert configuration["max_batch_size"] == 0
    assert configuration["input"][2] == {"name": "tags", "data_type": "TYPE_INT64", "dims": [-1]}


def test_the_documented_example_is_scored(context: DoorContext, peer: Peer) -> None:
    document: httpx.Response = fetch(create_app(context), "/openapi.json")
    operation = document.json()["paths"]["/v2/models/{model}/infer"]["post"]
    examples = operation["requestBody"]["content"]["application/json"]["examples"]
    example = examples["looked"]["value"]

    response = peer.ask(infer_request(json.dumps(example).encode(), path=PATH))

    assert response.status == 200
    assert {"name": "tags.lengths", "datatype": "INT64", "shape": [1], "data": [1]} in example[
        "inputs"
    ]
