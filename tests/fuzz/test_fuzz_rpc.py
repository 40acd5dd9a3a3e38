"""Damaged messages through a real gRPC port: each has a status of the tree, none hangs."""

import random
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.rpc import GrpcDoor
from anabranch_server.rpc.reading import RequestReader
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import lookup_model, scale_model, write_graph
from anabranch_testing.mutations import fuzz_cases, mutated
from anabranch_testing.rpc import HeldGroup, infer, open_door, raw_request
from anabranch_wire.errors import AnabranchError
from anabranch_wire.oip import InferTensorContents, ModelInferRequest, ModelMetadataRequest
from anabranch_wire.services import INFERENCE
from anabranch_wire.tensors import DATATYPES, TensorSpec

INFER = INFERENCE.methods["ModelInfer"].path
ROWS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
LISTS = sorted(InferTensorContents.DESCRIPTOR.fields_by_name)
AT_ONCE = 64

EXPECTED = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
    "DEADLINE_EXCEEDED",
}


def typed_seed() -> ModelInferRequest:
    request = ModelInferRequest(model_name="scale", model_version="42", id="r-1")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[2, 4])
    tensor.contents.fp32_contents.extend(ROWS.ravel().tolist())
    request.outputs.add(name="y").parameters["binary_data"].bool_param = True
    request.parameters["timeout"].int64_param = 5_000_000
    request.parameters["priority"].uint64_param = 1
    request.parameters["routing_key"].string_param = "u"
    request.parameters["other"].double_param = 0.5
    return request


def string_seed() -> ModelInferRequest:
    request = ModelInferRequest(model_name="words")
    request.inputs.add(name="x", datatype="BYTES", shape=[3])
    request.raw_input_contents.append(b"\x02\0\0\0ab\0\0\0\0\x01\0\0\0z")
    return request


SEEDS = [
    raw_request("scale", {"x": ROWS}),
    raw_request("lookup", {"ids": np.array([0, 4, 2], np.int64)}),
    typed_seed(),
    string_seed(),
]

TOKENS = [
    *(bytes([tag]) for tag in range(0, 128, 2)),  # tags of small fields
    b"\x00", b"\x0b", b"\x0c", b"\x07", b"\x80" * 9 + b"\x01", b"\x80" * 10, b"\xff" * 9 + b"\x01",
    b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x2a\x00" * 300, b"\x3a\x00" * 300,
    b"\x22\x00", b"\x22\x0b\x0a\x07timeout\x12\x00", b"\x1a\x01\x7f",
    b"\x1a\x0a" + b"\xff" * 9 + b"\x01",
    b"\x1a\x04\x80\x80\x80\x08", b"FP64", b"BYTES", b"BF16", b"lookup", b"words", b"42",
    b"\xc3\x28",
    b"\xed\xa0\x80", b"\xff\xff\xff\xff", b"\x00\x00\xc0\x7f", b"\x0b" * 120,
]  # fmt: skip


@pytest.fixture(scope="module")
def door(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[GrpcDoor, grpc.Channel]]:
    folder: Path = tmp_path_factory.mktemp("models")
    words = write_graph(
        folder / "words", "words (string[N] x) => (string[N] y) { y = Identity(x) }"
    )
    models = {
        "scale": scale_model(folder / "scale"),
        "lookup": lookup_model(folder / "lookup"),
        "words": DenseModel(
            words,
            (TensorSpec("x", "BYTES", (-1,)),),
            (TensorSpec("y", "BYTES", (-1,)),),
            RowLayout(True, 1, (0,), (0,)),
        ),
    }
    limits = Limits(max_tensors=64, max_rows=10_000, max_string_bytes=1000)
    with (
        door_context(models, limits=limits) as context,
        open_door(context, threads=8) as (door, channel),
    ):
        yield door, channel
        whole = answered(channel, INFER, [SEEDS[0].SerializeToString()] * 64)
        assert whole == {"OK": 64}, "threads were lost"


@pytest.fixture
def channel(door: tuple[GrpcDoor, grpc.Channel]) -> grpc.Channel:
    return door[1]


def answered(channel: grpc.Channel, path: str, bodies: Iterable[bytes]) -> Counter[str]:
    """Send `bodies`, some at a time; return how often each status came."""
    call = channel.unary_unary(path, None, None)
    statuses: Counter[str] = Counter()
    rest = iter(bodies)
    while some := list(islice(rest, AT_ONCE)):
        futures = [call.future(body, timeout=30) for body in some]
        for body, future in zip(some, futures, strict=True):
            status = future.code().name
            statuses[status] += 1
            assert status in EXPECTED, (status, future.details(), body)
    return statuses


def test_damaged_messages(channel: grpc.Channel) -> None:
    seeds = [seed.SerializeToString() for seed in SEEDS]

    statuses = answered(channel, INFER, mutated(seeds, TOKENS, fuzz_cases()))

    assert min(statuses["OK"], statuses["INVALID_ARGUMENT"], statuses["NOT_FOUND"]) > 0


def test_well_formed_messages_with_wrong_contents(channel: grpc.Channel) -> None:
    dice = random.Random(3)

    statuses = answered(channel, INFER, (spoilt(dice) for _ in range(fuzz_cases())))

    assert min(statuses["OK"], statuses["INVALID_ARGUMENT"]) > 0


def spoilt(dice: random.Random) -> bytes:
    """A seed with one to three fields replaced by values of the right type."""
    request = ModelInferRequest()
    request.CopyFrom(dice.choice(SEEDS))
    for _ in range(dice.randint(1, 3)):
        tensor = dice.choice(request.inputs) if request.inputs else request.inputs.add()
        match dice.randrange(9):
            case 0:
                axes = [dice.choice((-1, 0, 1, 2, 4, 2**31, 2**63 - 1)) for _ in range(2)]
                tensor.shape[:] = dice.choice(([], axes, [1] * 9, [*tensor.shape, 1]))
            case 1:
                tensor.datatype = dice.choice([*DATATYPES, "", "fp32", "TYPE_FP32"])
            case 2:
                tensor.name = dice.choice(("x", "y", "", "ids", "x" * 600, "\0", "\u2028"))
            case 3:
                request.raw_input_contents[:] = [
                    dice.randbytes(dice.choice((0, 1, 4, 16, 32)))
                    for _ in range(dice.randint(0, 2))
                ]
            case 4:
                field = dice.choice(LISTS)
                value: object = b"z" if field == "bytes_contents" else dice.choice((0, 1))
                getattr(tensor.contents, field).extend([value] * dice.choice((1, 8, 100)))
            case 5:
                parameter = request.parameters[dice.choice(("timeout", "priority", "routing_key"))]
                if dice.random() < 0.5:
                    parameter.int64_param = dice.choice((-1, 0, 1, 2**62))
                else:
                    parameter.string_param = "1"
            case 6:
                request.outputs.add(name=dice.choice(("y", "x", "")))
            case 7:
                request.model_version = dice.choice(("", "42", "43", "stable", "0", "..", "9" * 40))
            case _:
                request.inputs.append(tensor)
    return request.SerializeToString()


def test_a_reader_with_memory_reads_as_one_without(tmp_path: Path) -> None:
    served = HeldGroup().serve(lookup_model(tmp_path), "lookup")
    limits = Limits(max_tensors=64)
    with_memory = RequestReader(limits)
    seeds = [
        raw_request("lookup", {"ids": np.arange(count, dtype=np.int64)}).SerializeToString()
        for count in (1, 2, 3)
    ]
    # Damage of one to four bytes often spares what is remembered, longer damage often does not.
    tokens = [bytes(1), b"\xff", bytes(4), b"\x3a\x08", b"\x1a\x01\x02", b"ids", b"lookup"]
    known = 0

    for body in mutated(seeds, tokens, fuzz_cases()):
        for seed in seeds:
            read(with_memory, seed, served)
        remembered = read(with_memory, body, served)
        assert remembered == read(RequestReader(limits), body, served), body
        known += remembered is not None

    assert known > 0


def read(reader: RequestReader, body: bytes, served: ServedVersion) -> tuple[object, ...] | None:
    """What a message came to, as values; None if it was refused."""
    try:
        contents = reader.read(reader.open(body), served)
    except AnabranchError:
        return None
    arrays = [(array.shape, array.dtype, array.tobytes()) for array in contents.inputs]
    return (arrays, contents.rows, contents.outputs, contents.timeout_s, contents.priority)


def test_damaged_small_messages(channel: grpc.Channel) -> None:
    count = max(10, fuzz_cases() // 100)
    seeds: list[Message] = [
        ModelMetadataRequest(name="scale", version="42"),
        HealthCheckRequest(service=INFERENCE.name),
    ]
    bodies = [seed.SerializeToString() for seed in seeds]
    refused = {*EXPECTED, "PERMISSION_DENIED"}
    paths = [method.path for method in INFERENCE.methods.values() if not method.streams]

    for path in (*paths, "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List"):
        call = channel.unary_unary(path, None, None)
        for body in mutated(bodies, TOKENS, count):
            future = call.future(body, timeout=30)
            assert future.code().name in refused, (path, future.details(), body)


def test_damaged_reflection_streams(channel: grpc.Channel) -> None:
    seeds = [
        ServerReflectionRequest(list_services="").SerializeToString(),
        ServerReflectionRequest(file_containing_symbol=INFERENCE.name).SerializeToString(),
        ServerReflectionRequest(
            file_by_filename="inference/grpc_service.proto"
        ).SerializeToString(),
    ]
    call = channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", None, None
    )
    for body in mutated(seeds, TOKENS, max(10, fuzz_cases() // 20)):
        stream = call(iter([body]), timeout=30)
        try:
            assert len(list(stream)) == 1
        except grpc.RpcError as error:
            assert error.code().name == "INVALID_ARGUMENT", (error.details(), body)  # noqa: PT017


def test_bytes_that_are_no_http2_disturb_nobody(door: tuple[GrpcDoor, grpc.Channel]) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    seeds = [preface, b"POST /v2 HTTP/1.1\r\nHost: x\r\n\r\n"]
    tokens = [b"\0\0\1\0\1\0\0\0\1x", b"\0\0\4\1\5\0\0\0\1\x82\x86\x84\x41", b"\xff" * 9]

    for body in mutated(seeds, tokens, max(10, fuzz_cases() // 100)):
        with socket.create_connection(("127.0.0.1", door[0].port), timeout=20) as peer:
            peer.sendall(body)

    assert infer(door[1], SEEDS[0])[0].model_name == "scale"
