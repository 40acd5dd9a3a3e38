from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_server.limits import Limits
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.graphs import lookup_model, scale_model, write_graph
from anabranch_testing.rpc import (
    call_bytes,
    failure,
    infer,
    open_door,
    raw_request,
    trailers_of,
)
from anabranch_wire.oip import InferTensorContents, ModelInferRequest
from anabranch_wire.services import INFERENCE
from anabranch_wire.tensors import DATATYPES, Datatype, TensorSpec

ROW = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
INFER = INFERENCE.methods["ModelInfer"].path

ECHOED: dict[Datatype, str] = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float",
    "FP64": "double",
    "BYTES": "string",
}
"""Datatype -> the ONNX type of a model that answers with its input."""


@pytest.fixture(scope="module")
def observed() -> Observed:
    return Observed()


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory, observed: Observed) -> Iterator[grpc.Channel]:
    folder = tmp_path_factory.mktemp("models")
    models = {"scale": scale_model(folder / "scale"), "lookup": lookup_model(folder / "lookup")}
    for datatype, onnx_type in ECHOED.items():
        text = f"echo ({onnx_type}[N] x) => ({onnx_type}[N] y) {{ y = Identity(x) }}"
        models[datatype] = DenseModel(
            write_graph(folder / datatype, text),
            (TensorSpec("x", datatype, (-1,)),),
            (TensorSpec("y", datatype, (-1,)),),
            RowLayout(True, 1, (0,), (0,)),
        )
    two = "two (float[N, 4] x) => (float[N, 4] a, float[N, 4] b) { a = Neg(x) b = Abs(x) }"
    models["two"] = DenseModel(
        write_graph(folder / "two", two),
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("a", "FP32", (-1, 4)), TensorSpec("b", "FP32", (-1, 4))),
        RowLayout(True, 1, (0,), (0, 0)),
    )
    wide = "wide (float[N, M] x) => (float[N, M] y) { y = Neg(x) }"
    models["wide"] = DenseModel(
        write_graph(folder / "wide", wide),
        (TensorSpec("x", "FP32", (-1, -1)),),
        (TensorSpec("y", "FP32", (-1, -1)),),
        RowLayout(True, 1, (0,), (0,)),
    )
    limits = Limits(max_rows=8, max_tensors=4, max_elements=1000, max_string_bytes=16)
    with (
        door_context(models, observed=observed, limits=limits) as context,
        open_door(context) as (_, channel),
    ):
        yield channel


def scale_request() -> ModelInferRequest:
    return raw_request("scale", {"x": ROW})


def typed_request(model: str, datatype: str, **contents: object) -> ModelInferRequest:
    elements = next(iter(contents.values()))
    assert isinstance(elements, list)
    request = ModelInferRequest(model_name=model)
    request.inputs.add(
        name="x",
        datatype=datatype,
        shape=[len(elements)],
        contents=InferTensorContents(**contents),  # type: ignore[arg-type]  # of many types
    )
    return request


def test_raw_contents_are_scored_and_the_snapshot_is_named(channel: grpc.Channel) -> None:
    request = scale_request()
    request.id = "r-1"

    response, trailers = infer(channel, request, metadata=(("x-request-id", "abc"),))

    assert (response.model_name, response.model_version, response.id) == ("scale", "42", "r-1")
    assert response.parameters["delta"].int64_param == 17
    assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [
        ("y", "FP32", [1, 1])
    ]
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [4321.0]
    assert trailers["x-request-id"] == "abc"
    assert trailers["anabranch-model-version"] == "42"
    assert trailers["anabranch-delta"] == "17"


def test_typed_contents_are_answered_raw(channel: grpc.Channel) -> None:
    request = ModelInferRequest(model_name="scale")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend(
        ROW[0].tolist()
    )

    response, _ = infer(channel, request)

    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [4321.0]
    assert not response.outputs[0].HasField("contents")


@pytest.mark.parametrize("version", ["", "42", "stable"])
def test_a_version_is_chosen_by_number_or_label(channel: grpc.Channel, version: str) -> None:
    request = scale_request()
    request.model_version = version

    assert infer(channel, request)[0].model_version == "42"


@pytest.mark.parametrize(
    ("datatype", "field", "elements"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-(2**15), 2**15 - 1]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 2**16 - 1]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [1.5, -2.25]),
        ("FP64", "fp64_contents", [1.1, -2.2]),
    ],
)
def test_every_typed_list_carries_its_datatypes(
    channel: grpc.Channel, datatype: Datatype, field: str, elements: list[float]
) -> None:
    response, _ = infer(channel, typed_request(datatype, datatype, **{field: elements}))

    dtype = DATATYPES[datatype]
    assert np.frombuffer(response.raw_output_contents[0], dtype).tolist() == elements


@pytest.mark.parametrize("datatype", [name for name in ECHOED if name != "BYTES"])
def test_raw_contents_carry_every_datatype(channel: grpc.Channel, datatype: Datatype) -> None:
    array: NDArray[np.generic] = np.array([1, 0, 1], DATATYPES[datatype])

    response, _ = infer(channel, raw_request(datatype, {"x": array}))

    assert response.raw_output_contents[0] == array.tobytes()


def test_strings_travel_typed_and_raw(channel: grpc.Channel) -> None:
    typed = typed_request("BYTES", "BYTES", bytes_contents=[b"ab", b"", "é".encode()])
    packed = b"\x02\0\0\0ab\0\0\0\0\x02\0\0\0" + "é".encode()
    raw = ModelInferRequest(model_name="BYTES", raw_input_contents=[packed])
    raw.inputs.add(name="x", datatype="BYTES", shape=[3])

    assert infer(channel, typed)[0].raw_output_contents[0] == packed
    assert infer(channel, raw)[0].raw_output_contents[0] == packed


def test_outputs_are_answered_in_the_order_asked_for(channel: grpc.Channel) -> None:
    request = raw_request("two", {"x": ROW})
    everything, _ = infer(channel, request)
    request.outputs.add(name="b")
    only_b, _ = infer(channel, request)
    request.outputs.add(name="a")
    both, _ = infer(channel, request)

    assert [output.name for output in everything.outputs] == ["a", "b"]
    assert [output.name for output in only_b.outputs] == ["b"]
    assert [output.name for output in both.outputs] == ["b", "a"]
    assert np.frombuffer(both.raw_output_contents[1], np.float32).tolist() == [-1, -2, -3, -4]


@pytest.mark.parametrize(
    ("model", "datatype", "shape", "answer"),
    [("scale", "FP32", [0, 4], [0, 1]), ("BYTES", "BYTES", [0], [0])],
)
def test_no_rows_need_no_contents(
    channel: grpc.Channel, model: str, datatype: str, shape: list[int], answer: list[int]
) -> None:
    request = ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype=datatype, shape=shape)

    response, _ = infer(channel, request)

    assert list(response.outputs[0].shape) == answer


def both_forms(request: ModelInferRequest) -> None:
    request.inputs[0].contents.fp32_contents.extend([1.0] * 4)


def no_contents(request: ModelInferRequest) -> None:
    request.ClearField("raw_input_contents")


def raw_for_another_number_of_inputs(request: ModelInferRequest) -> None:
    request.raw_input_contents.append(b"")


def raw_too_short(request: ModelInferRequest) -> None:
    request.raw_input_contents[0] = b"\0" * 15


def wrong_list(request: ModelInferRequest) -> None:
    request.ClearField("raw_input_contents")
    request.inputs[0].contents.fp64_contents.extend([1.0] * 4)


def too_few_elements(request: ModelInferRequest) -> None:
    request.ClearField("raw_input_contents")
    request.inputs[0].contents.fp32_contents.extend([1.0] * 3)


def unknown_input(request: ModelInferRequest) -> None:
    request.inputs[0].name = "z"


def no_input(request: ModelInferRequest) -> None:
    request.ClearField("inputs")
    request.ClearField("raw_input_contents")


def twice(request: ModelInferRequest) -> None:
    request.inputs.append(request.inputs[0])
    request.raw_input_contents.append(request.raw_input_contents[0])


def wrong_datatype(request: ModelInferRequest) -> None:
    request.inputs[0].datatype = "FP64"


def unknown_datatype(request: ModelInferRequest) -> None:
    request.inputs[0].datatype = "FLOAT"


def wrong_rank(request: ModelInferRequest) -> None:
    request.inputs[0].shape[:] = [4]


def negative_axis(request: ModelInferRequest) -> None:
    request.inputs[0].shape[:] = [-1, 4]


def unknown_output(request: ModelInferRequest) -> None:
    request.outputs.add(name="z")


def output_twice(request: ModelInferRequest) -> None:
    request.outputs.add(name="y")
    request.outputs.add(name="y")


def timeout_as_text(request: ModelInferRequest) -> None:
    request.parameters["timeout"].string_param = "10"


def negative_timeout(request: ModelInferRequest) -> None:
    request.parameters["timeout"].int64_param = -1


def empty_timeout(request: ModelInferRequest) -> None:
    request.parameters["timeout"].SetInParent()


def priority_as_text(request: ModelInferRequest) -> None:
    request.parameters["priority"].string_param = "1"


def routing_key_as_bool(request: ModelInferRequest) -> None:
    request.parameters["routing_key"].bool_param = True


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (both_forms, "input 'x': contents and raw_input_contents are both there"),
        (no_contents, "input 'x': neither contents nor raw_input_contents"),
        (raw_for_another_number_of_inputs, "2 raw_input_contents for 1 inputs"),
        (raw_too_short, "expected 16 bytes"),
        (wrong_list, "expected FP32 in fp32_contents, got fp64_contents"),
        (too_few_elements, "expected 4 elements in fp32_contents for shape [1, 4], got 3"),
        (unknown_input, "input 'z': no such input; expected 'x'"),
        (no_input, "input 'x' is missing"),
        (twice, "input 'x' is given twice"),
        (wrong_datatype, "expected datatype FP32, got 'FP64'"),
        (unknown_datatype, "expected datatype FP32, got 'FLOAT'"),
        (wrong_rank, "expected shape [-1, 4] (-1 = any), got [4]"),
        (negative_axis, "got [-1, 4]"),
        (unknown_output, "output 'z': no such output; expected 'y'"),
        (output_twice, "output 'y' is requested twice"),
        (timeout_as_text, "parameter 'timeout': expected an integer"),
        (negative_timeout, "parameter 'timeout': expected an integer"),
        (empty_timeout, "parameter 'timeout': expected an integer"),
        (priority_as_text, "parameter 'priority': expected an integer"),
        (routing_key_as_bool, "parameter 'routing_key': expected a string or integer"),
    ],
)
def test_a_wrong_request_is_an_invalid_argument(
    channel: grpc.Channel, spoil: Callable[[ModelInferRequest], None], text: str
) -> None:
    request = scale_request()
    spoil(request)

    code, details = failure(channel, request)

    assert code == "INVALID_ARGUMENT"
    assert text in details


@pytest.mark.parametrize(
    ("datatype", "field", "element"),
    [
        ("INT8", "int_contents", 128),
        ("INT16", "int_contents", -(2**15) - 1),
        ("UINT8", "uint_contents", 256),
        ("UINT16", "uint_contents", 2**16),
    ],
)
def test_elements_out_of_range_are_refused(
    channel: grpc.Channel, datatype: str, field: str, element: int
) -> None:
    code, details = failure(channel, typed_request(datatype, datatype, **{field: [0, element]}))

    assert code == "INVALID_ARGUMENT"
    assert f"expected {datatype} elements" in details


def test_half_floats_have_no_typed_list(channel: grpc.Channel) -> None:
    code, details = failure(channel, typed_request("FP16", "FP16", fp32_contents=[1.0]))

    assert (code, "send raw_input_contents" in details) == ("INVALID_ARGUMENT", True)


def test_a_value_that_the_graph_refuses_is_the_callers_fault(channel: grpc.Channel) -> None:
    code, _ = failure(channel, raw_request("lookup", {"ids": np.array([99], np.int64)}))

    assert code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("model", "version"), [("nope", ""), ("", ""), ("scale", "7"), ("scale", "nolabel")]
)
def test_what_is_not_there_is_not_found(channel: grpc.Channel, model: str, version: str) -> None:
    request = scale_request()
    request.model_name, request.model_version = model, version

    assert failure(channel, request)[0] == "NOT_FOUND"


def test_features_we_do_not_have_are_named(channel: grpc.Channel) -> None:
    shared_input, shared_output, classes = scale_request(), scale_request(), scale_request()
    shared_input.inputs[0].parameters["shared_memory_region"].string_param = "r"
    shared_output.outputs.add(name="y").parameters["shared_memory_region"].string_param = "r"
    classes.outputs.add(name="y").parameters["classification"].int64_param = 3

    for request in (shared_input, shared_output):
        code, details = failure(channel, request)
        assert (code, "shared memory is not supported" in details) == ("UNIMPLEMENTED", True)
    assert failure(channel, classes)[0] == "UNIMPLEMENTED"


def test_parameters_we_do_not_know_are_ignored(channel: grpc.Channel) -> None:
    request = scale_request()
    request.parameters["sequence_id"].int64_param = 7
    request.parameters["timeout"].int64_param = 0
    request.parameters["priority"].uint64_param = 1
    request.inputs[0].parameters["anything"].bool_param = True

    assert infer(channel, request)[0].model_name == "scale"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (raw_request("scale", {"x": np.zeros((9, 4), np.float32)}), "9 rows"),
        (raw_request("scale", {f"x{i}": ROW for i in range(5)}), "5 inputs"),
        (raw_request("scale", {"x": np.zeros((1,) * 9, np.float32)}), "9 axes"),
        (raw_request("wide", {"x": np.zeros((1, 1001), np.float32)}), "1001 elements"),
        (typed_request("BYTES", "BYTES", bytes_contents=[b"x" * 17]), "17 bytes"),
    ],
)
def test_limits_are_named_when_they_are_passed(
    channel: grpc.Channel, request_: ModelInferRequest, text: str
) -> None:
    code, details = failure(channel, request_)

    assert code == "RESOURCE_EXHAUSTED"
    assert text in details


@pytest.mark.parametrize(
    "shape", [[2**62, 2**62], [2**63 - 1, 4], [2**40, 4]], ids=["overflow", "largest", "huge"]
)
def test_a_shape_is_not_allocated_before_it_is_checked(
    channel: grpc.Channel, shape: list[int]
) -> None:
    request = scale_request()
    request.inputs[0].shape[:] = shape

    assert failure(channel, request)[0] in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")


def test_many_empty_messages_are_refused_before_they_are_parsed(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(channel, INFER, b"\x2a\x00" * 500_000)

    assert caught.value.code().name == "RESOURCE_EXHAUSTED"
    assert "too many fields" in str(caught.value.details())


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"\x0a\x05sc",
        b"\x0a\x02\xff\xfe",
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\x0b" * 200,
        b"\x3a\x80\x80\x80\x08" + b"\0" * 70_000,
        b"\x3a" + b"\xff" * 70_000,
    ],
)
def test_bytes_that_are_no_request_are_an_invalid_argument(
    channel: grpc.Channel, body: bytes
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(channel, INFER, body)

    assert caught.value.code().name == "INVALID_ARGUMENT"
    assert "malformed" in str(caught.value.details())


@pytest.mark.parametrize(
    "entry", [("anabranch-timeout-ms", "soon"), ("anabranch-priority", "-1")], ids=lambda e: e[0]
)
def test_malformed_metadata_is_an_invalid_argument(
    channel: grpc.Channel, entry: tuple[str, str]
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, scale_request(), metadata=(entry,))

    assert caught.value.code().name == "INVALID_ARGUMENT"
    assert entry[0] in str(caught.value.details())


def test_every_answer_has_a_request_id(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, ModelInferRequest(), metadata=(("x-request-id", "abc"),))
    _, made = infer(channel, scale_request())
    _, replaced = infer(channel, scale_request(), metadata=(("x-request-id", "x" * 129),))

    assert trailers_of(caught.value)["x-request-id"] == "abc"
    assert made["x-request-id"] != replaced["x-request-id"]
    assert len(str(replaced["x-request-id"])) <= 128


def test_requests_are_counted_with_their_code(channel: grpc.Channel, observed: Observed) -> None:
    observed.scores.clear()
    observed.failures.clear()
    request = scale_request()
    response, _ = infer(channel, request)
    unknown = scale_request()
    unknown.model_name = "nope"
    failure(channel, unknown)

    size_in, size_out = request.ByteSize(), response.ByteSize()
    assert observed.scores == [("scale", "oip_grpc", size_in, size_out)]
    assert observed.failures == [("nope", "oip_grpc", "NOT_FOUND")]


def test_a_trace_is_named_in_the_trailers(channel: grpc.Channel, observed: Observed) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    metadata = (("traceparent", f"00-{trace}-00f067aa0ba902b7-00"), ("tracestate", "a=1"))
    observed.traces.clear()
    _, scored = infer(channel, scale_request(), metadata=metadata)
    with pytest.raises(grpc.RpcError) as caught:
        infer(channel, ModelInferRequest(), metadata=metadata)
    _, malformed = infer(channel, scale_request(), metadata=(("traceparent", "00-1-2-3"),))

    for trailers in (scored, trailers_of(caught.value)):
        assert str(trailers["traceparent"]).startswith(f"00-{trace}-")
        assert str(trailers["traceparent"]).endswith("-00")
        assert trailers["tracestate"] == "a=1"
    assert "traceparent" not in malformed
    assert [one and one.trace_id for one in observed.traces] == [trace, trace, None]
