import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.settings import QueueSettings
from anabranch_server.limits import Limits
from anabranch_server.oip import CallOptions, InferDecoder, ReplyForm
from anabranch_testing.versions import Declared, declared_version
from anabranch_wire.errors import AnabranchError, InvalidInput, TooLarge, Unsupported
from anabranch_wire.tensors import DATATYPES, Datatype

NOW = 1000.0
ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
NUMBERS: Sequence[Datatype] = (
    "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64",
)  # fmt: skip


@pytest.fixture
def served() -> ServedVersion:
    return declared_version(
        [("x", "FP32", (-1, 4)), ("ids", "INT64", (-1,))],
        [("y", "FP32", (-1, 1)), ("z", "FP64", (-1, 2))],
    )


def one_input(datatype: Datatype, shape: tuple[int, ...] = (-1,)) -> ServedVersion:
    return declared_version([("x", datatype, shape)])


def decode(
    served: ServedVersion,
    body: bytes,
    json_bytes: int | None = None,
    *,
    limits: Limits | None = None,
    timeout_s: float | None = None,
    priority: int | None = None,
) -> tuple[ScoreRequest, ReplyForm]:
    options = CallOptions(NOW, timeout_s, priority)
    return InferDecoder(limits or Limits()).decode(body, json_bytes, served, options)


def refusal(served: ServedVersion, body: bytes, json_bytes: int | None = None, **more: Any) -> str:
    with pytest.raises(AnabranchError) as caught:
        decode(served, body, json_bytes, **more)
    assert type(caught.value) in (InvalidInput, TooLarge, Unsupported)
    return f"{type(caught.value).__name__}: {caught.value.message}"


def tensor(name: str, array: NDArray[np.generic], datatype: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": datatype, **fields}


def request_json(*inputs: Mapping[str, Any], **fields: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **fields}).encode()


def binary(*tensors: tuple[str, str, NDArray[np.generic]], **fields: Any) -> tuple[bytes, int]:
    head = request_json(
        *[
            tensor(name, array, datatype, parameters={"binary_data_size": array.nbytes})
            for name, datatype, array in tensors
        ],
        **fields,
    )
    return head + b"".join(array.tobytes() for _, _, array in tensors), len(head)


# --- tensors --------------------------------------------------------------------------------------


def test_binary_inputs_are_views_in_the_models_order(served: ServedVersion) -> None:
    ids = np.array([7, -9], np.int64)
    body, json_bytes = binary(("ids", "INT64", ids), ("x", "FP32", ROWS))

    request, form = decode(served, body, json_bytes)

    assert request.rows == 2
    assert [array.tolist() for array in request.inputs] == [ROWS.tolist(), ids.tolist()]
    assert [array.dtype for array in request.inputs] == [np.float32, np.int64]
    assert not request.inputs[0].flags.owndata
    assert np.shares_memory(request.inputs[0], np.frombuffer(body, np.uint8))
    assert form == ReplyForm(None, (False, False))


def test_json_and_binary_inputs_mix(served: ServedVersion) -> None:
    head = request_json(
        tensor("x", ROWS, "FP32", data=ROWS.tolist()),
        tensor("ids", np.zeros(2), "INT64", parameters={"binary_data_size": 16}),
    )

    request, _ = decode(served, head + np.array([3, 4], "<i8").tobytes(), len(head))

    assert request.inputs[0].tolist() == ROWS.tolist()
    assert request.inputs[1].tolist() == [3, 4]


@pytest.mark.parametrize("datatype", NUMBERS)
def test_json_numbers_flat_or_nested_keep_their_extremes(datatype: Datatype) -> None:
    dtype = DATATYPES[datatype]
    info = np.iinfo(dtype.name) if dtype.kind in "iu" else np.finfo(dtype.name)
    values = np.array([[info.min, info.max], [0, 1]], dtype)
    served = one_input(datatype, (-1, 2))
    for data in (values.tolist(), values.ravel().tolist()):
        request, _ = decode(served, request_json(tensor("x", values, datatype, data=data)))

        assert request.inputs[0].dtype == dtype
        assert np.array_equal(request.inputs[0], values)


@pytest.mark.parametrize("datatype", [*NUMBERS, "FP16", "BF16", "BOOL"])
def test_every_datatype_is_read_in_binary(datatype: Datatype) -> None:
    values = np.array([[1, 0], [0, 1]]).astype(DATATYPES[datatype])
    body, json_bytes = binary(("x", datatype, values))

    request, _ = decode(one_input(datatype, (-1, 2)), body, json_bytes)

    assert np.array_equal(request.inputs[0], values)


def test_bools_come_as_words_or_numbers() -> None:
    head = request_json(tensor("x", np.zeros(4), "BOOL", data=[True, False, 1, 0]))

    request, _ = decode(one_input("BOOL"), head)

    assert request.inputs[0].tolist() == [True, False, True, False]


def test_strings_come_in_json_and_in_binary() -> None:
    served = one_input("BYTES", (-1, 2))
    words = ["", "a", "größe", '"\\\n']
    packed = b"".join(
        len(data).to_bytes(4, "little") + data for data in (word.encode() for word in words)
    )
    shape = np.zeros((2, 2))
    head = request_json(tensor("x", shape, "BYTES", parameters={"binary_data_size": len(packed)}))
    forms = [
        decode(served, request_json(tensor("x", shape, "BYTES", data=words))),
        decode(served, request_json(tensor("x", shape, "BYTES", data=[words[:2], words[2:]]))),
        decode(served, head + packed, len(head)),
    ]
    for request, _ in forms:
        assert request.inputs[0].shape == (2, 2)
        assert request.inputs[0].ravel().tolist() == [word.encode() for word in words]


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_are_not_read_in_json(datatype: Datatype) -> None:
    body = request_json(tensor("x", np.zeros(2), datatype, data=[0.5, 1]))

    assert refusal(one_input(datatype), body) == (
        f"InvalidInput: input 'x': {datatype} is sent as binary data only"
    )


def test_not_a_number_and_infinities_are_read_in_json() -> None:
    served = declared_version([("x", "FP32", (-1,)), ("NaN", "FP32", (-1,))])
    body = (
        b'{"id": "NaN, \\"Infinity", "inputs": ['
        b'{"name": "NaN", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]},'
        b'{"name": "x", "shape": [3], "datatype": "FP32", "data": [[NaN], [Infinity], [-Infinity]]}'
        b"]}"
    )

    request, form = decode(served, body)

    assert form.id == 'NaN, "Infinity'
    assert np.array_equal(request.inputs[0], [np.nan, np.inf, -np.inf], equal_nan=True)
    assert request.inputs[1].tolist() == [1, 2, 3]


def test_no_rows_are_rows() -> None:
    served = one_input("FP32", (-1, 4))
    empty = np.zeros((0, 4), np.float32)
    body, json_bytes = binary(("x", "FP32", empty))
    for request, _ in (
        decode(served, request_json(tensor("x", empty, "FP32", data=[]))),
        decode(served, body, json_bytes),
    ):
        assert (request.rows, request.inputs[0].shape) == (0, (0, 4))


def test_long_json_data_is_read_wherever_it_stands() -> None:
    served = declared_version(
        [
            ("x", "FP32", (-1, 8)),
            ("s", "BYTES", (-1,)),
            ("ids", "INT64", (-1,)),
            ("y", "FP64", (-1,)),
        ]
    )
    x = np.random.default_rng(1).random((300, 8), np.float32)
    ids = np.arange(300) - 150
    words = ["]" * 20, '"data":[', "a"] * 100
    y = np.where(ids % 7 == 0, np.nan, ids.astype(np.float64))
    rows = np.zeros(300)
    for nested in (True, False):
        data = x.tolist() if nested else x.ravel().tolist()
        tensors = [
            tensor("x", x, "FP32", data=data),
            tensor("s", rows, "BYTES", data=words),
            tensor("ids", rows, "INT64", data=ids.tolist()),
            tensor("y", rows, "FP64", data=y.tolist()),
        ]
        for order in (tensors, tensors[::-1]):
            document = {"id": '"data":[1', "inputs": order, "parameters": {"data": [1, 2]}}
            for body in (
                json.dumps(document).encode(),
                json.dumps(document, indent=1).encode(),
                json.dumps(document, separators=(",", ":")).encode(),
            ):
                request, reply = decode(served, body)

                assert reply.id == document["id"]
                assert np.array_equal(request.inputs[0], x)
                assert request.inputs[1].tolist() == [word.encode() for word in words]
                assert np.array_equal(request.inputs[2], ids)
                assert np.array_equal(request.inputs[3], y, equal_nan=True)


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b"1," * 3000 + b"]",
        b"[" + b"1," * 2999 + b"1]]",
        b"[[" + b"1," * 2999 + b"1]",
        b"[[[" + b"1," * 1499 + b"1]],[[" + b"1," * 1499 + b"1]]",
        b"[" + b"1," * 1500 + b"{]}," + b"1," * 1500 + b"1]",
        b"[" + b"1 " * 3000 + b"]",
    ],
)
def test_long_json_data_that_is_no_array_is_refused(data: bytes) -> None:
    served = one_input("FP32")
    head = b'{"inputs": [{"name": "x", "shape": [3000], "datatype": "FP32", "data": '
    good = b"[" + b"1," * 2999 + b"1]"
    for body in (
        head + data + b"}]}",
        head + good + b'}], "other": {"data": ' + data + b"}}",
        b'{"data": ' + data + b"," + head[1:] + good + b"}]}",
    ):
        assert refusal(served, body).startswith("InvalidInput: ")
    assert decode(served, head + good + b"}]}")[0].rows == 3000


def test_three_levels_of_long_json_data_are_read() -> None:
    x = np.arange(2400, dtype=np.float32).reshape(10, 12, 20)

    body = request_json(tensor("x", x, "FP32", data=x.tolist()))

    request, _ = decode(one_input("FP32", (-1, 12, 20)), body)
    assert np.array_equal(request.inputs[0], x)


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": []]' + b'"data":[' * 400_000,
        b'{"inputs": []]' + b'"data":[[' * 400_000 + b"]",
        b'{"inputs": []]' + b'"data":[' * 400_000 + b"]",
        b'{"inputs": []' + b',"data":[]' * 400_000 + b"}",
        b'{"inputs": [' + b'{"data":[[1]]},' * 200_000 + b"{}]}",
        b'{"inputs": [' + b'{"name":"","shape":[],"datatype":"","data":[]},' * 60_000 + b"0]}",
        b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":' + b"[" * 31 + b" " * 10**6,
        b'{"inputs": [], "id": NaN' + b'"a\\' * 400_000,
        b'{"inputs": [], "id": NaN' + b"\\" * 10**6,
        b'{"inputs": [], "x": [' + b"NaN," * 10**6 + b"0]}",
    ],
)
def test_no_document_takes_more_than_linear_time(served: ServedVersion, body: bytes) -> None:
    began = time.process_time()

    refusal(served, body)

    assert time.process_time() - began < 10  # quadratic would be minutes


# --- a body that is one tensor --------------------------------------------------------------------


def test_a_raw_body_is_one_row() -> None:
    row = np.array([1, 2, 3, 4], np.float32)

    request, form = decode(one_input("FP32", (-1, 4)), row.tobytes(), 0)

    assert request.rows == 1
    assert request.inputs[0].tolist() == [[1, 2, 3, 4]]
    assert form == ReplyForm(None, (True,))


def test_one_open_axis_of_a_raw_body_follows_from_its_size() -> None:
    request, _ = decode(one_input("INT32", (-1, -1, 2)), np.arange(6, dtype="<i4").tobytes(), 0)

    assert request.inputs[0].tolist() == [[[0, 1], [2, 3], [4, 5]]]


def test_an_empty_body_is_a_raw_one() -> None:
    request, _ = decode(one_input("FP32", (-1, -1)), b"")

    assert request.inputs[0].shape == (1, 0)


def test_a_raw_string_has_no_length() -> None:
    request, _ = decode(one_input("BYTES", (-1, 1)), b"sale", 0)

    assert request.inputs[0].tolist() == [[b"sale"]]


@pytest.mark.parametrize(
    ("declared", "body", "text"),
    [
        (("x", "FP32", (-1, 4)), bytes(15), "InvalidInput: input 'x': expected 16 bytes"),
        (("x", "FP32", (-1, -1)), bytes(15), "InvalidInput: input 'x': expected a multiple of 4"),
        (("x", "FP32", (-1, -1, -1)), bytes(16), "InvalidInput: input 'x' has several open axes"),
        (
            ("x", "FP32", (-1, 0, -1)),
            bytes(16),
            "InvalidInput: input 'x': expected a multiple of 0",
        ),
        (("x", "BYTES", (-1, 2)), b"sale", "InvalidInput: input 'x' has 2 BYTES elements"),
        (("x", "BYTES", (-1,)), bytes(2**20 + 1), "TooLarge: input 'x': 1048577 bytes"),
    ],
)
def test_a_raw_body_that_is_no_row_is_refused(declared: Declared, body: bytes, text: str) -> None:
    assert refusal(declared_version([declared]), body, 0).startswith(text)


def test_a_raw_body_needs_a_model_with_one_input(served: ServedVersion) -> None:
    assert "carries one tensor, but model 'm' has 2 inputs" in refusal(served, b"abc", 0)


# --- outputs, parameters --------------------------------------------------------------------------


def x_request(**fields: Any) -> bytes:
    return request_json(tensor("x", ROWS, "FP32", data=ROWS.ravel().tolist()), **fields)


@pytest.fixture
def scored() -> ServedVersion:
    return declared_version(
        [("x", "FP32", (-1, 4))],
        [("y", "FP32", (-1, 1)), ("z", "FP64", (-1, 2)), ("h", "FP16", (-1,))],
        queue=QueueSettings(default_timeout_s=2.0, max_timeout_s=5.0),
    )


def test_outputs_are_answered_in_the_order_asked_for(scored: ServedVersion) -> None:
    outputs = [
        {"name": "z"},
        {"name": "h", "parameters": {"binary_data": True}},
        {"name": "y", "parameters": {"binary_data": False}},
    ]

    request, form = decode(scored, x_request(outputs=outputs))
    assert (request.outputs, form.binary) == ((1, 2, 0), (False, True, False))

    request, form = decode(
        scored, x_request(outputs=outputs, parameters={"binary_data_output": True})
    )
    assert (request.outputs, form.binary) == ((1, 2, 0), (True, True, False))


@pytest.mark.parametrize("outputs", [None, []])
def test_no_outputs_are_all_outputs(scored: ServedVersion, outputs: list[Any] | None) -> None:
    body = x_request(outputs=outputs, parameters={"binary_data_output": True})

    request, form = decode(scored, body)

    assert (request.outputs, form.binary) == ((), (True, True, True))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "InvalidInput: output 'h': FP16 is answered as binary data only"),
        ({"outputs": [{"name": "h"}]}, "InvalidInput: output 'h': FP16 is answered as binary"),
        ({"outputs": [{"name": "w"}]}, "InvalidInput: output 'w': no such output; expected 'y', "),
        (
            {"outputs": [{"name": "y"}, {"name": "y"}]},
            "InvalidInput: output 'y' is requested twice",
        ),
        (
            {"outputs": [{"name": "y", "parameters": {"classification": 3}}]},
            "Unsupported: output 'y': classification",
        ),
        (
            {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]},
            "Unsupported: output 'y': shared memory",
        ),
        ({"outputs": [{"name": "y"}] * 1025}, "TooLarge: 1025 outputs: at most 1024"),
        ({"outputs": {"name": "y"}}, "InvalidInput: request JSON: outputs: expected array"),
    ],
)
def test_outputs_that_cannot_be_answered_are_refused(
    scored: ServedVersion, fields: dict[str, Any], text: str
) -> None:
    assert refusal(scored, x_request(**fields)).startswith(text)


BINARY = {"binary_data_output": True}


@pytest.mark.parametrize(
    ("parameter_us", "header_s", "expected_s"),
    [
        (None, None, 2.0),
        (0, None, 2.0),
        (3_000_000, None, 3.0),
        (None, 0.5, 0.5),
        (3_000_000, 0.5, 0.5),
        (250_000, 0.5, 0.25),
        (60_000_000, None, 5.0),
        (None, 0.0, 0.0),
    ],
)
def test_the_shortest_time_limit_counts(
    scored: ServedVersion, parameter_us: int | None, header_s: float | None, expected_s: float
) -> None:
    body = x_request(parameters={**BINARY, "timeout": parameter_us})

    request, _ = decode(scored, body, timeout_s=header_s)

    assert request.deadline == NOW + expected_s


@pytest.mark.parametrize(
    ("parameter", "header", "expected"),
    [(None, None, 0), (0, None, 0), (1, None, 1), (None, 2, 2), (0, 2, 2), (1, 2, 1)],
)
def test_the_requests_own_priority_wins(
    scored: ServedVersion, parameter: int | None, header: int | None, expected: int
) -> None:
    body = x_request(parameters={**BINARY, "priority": parameter})

    request, _ = decode(scored, body, priority=header)

    assert request.priority == expected


def test_unknown_fields_and_parameters_are_ignored(scored: ServedVersion) -> None:
    body = x_request(
        parameters={**BINARY, "sequence_id": 7, "triton_x": {"a": [1]}, "routing_key": "u1"},
        model_name="ignored",
        id="r-1",
    )

    request, form = decode(scored, body)

    assert (request.rows, form.id) == (2, "r-1")


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"timeout": -1}, "parameter 'timeout' -1: expected microseconds, 0 to 184467"),
        ({"timeout": 10**400}, "parameter 'timeout' 1000000"),
        ({"priority": -1}, "parameter 'priority' -1: expected at least 0"),
        ({"timeout": "1"}, "request JSON: parameters.timeout: expected int | null, got str"),
        ({"timeout": 1.5}, "request JSON: parameters.timeout: expected int | null, got float"),
        ({"routing_key": [1]}, "request JSON: parameters.routing_key: expected"),
        ({"binary_data_output": 1}, "request JSON: parameters.binary_data_output: expected bool"),
    ],
)
def test_parameters_of_the_wrong_kind_are_refused(
    scored: ServedVersion, parameters: dict[str, Any], text: str
) -> None:
    body = x_request(parameters={**BINARY, **parameters})

    assert refusal(scored, body).startswith(f"InvalidInput: {text}")


# --- malformed ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "request JSON: input data was truncated"),
        (b"[]", "request JSON: expected object, got array"),
        (b"{}", "request JSON: missing field 'inputs'"),
        (b'{"inputs": [] } x', "request JSON: JSON is malformed: trailing characters"),
        (b'{"inputs": []}', "input 'x' is missing; expected 'x', 'ids'"),
        (b'{"inputs": {}}', "request JSON: inputs: expected array, got object"),
        (b'{"inputs": [7]}', "request JSON: inputs[0]: expected object, got int"),
        (b'{"inputs": [{"name": "x"}]}', "request JSON: inputs[0]: missing field 'datatype'"),
        (b'{"inputs": [], "id": 7}', "request JSON: id: expected str | null, got int"),
        (b'{"inputs": [], "id": "\xff"}', "request JSON: invalid UTF-8 encoded string"),
        (b'{"inputs": [NaN]}', "request JSON: inputs[0]: expected object, got float"),
        (b'{"inputs": [], NaN}', "request JSON: "),
        (
            b'{"inputs": [{"name": "x", "shape": [1], "datatype": NaN}]}',
            "request JSON: inputs[0].d",
        ),
        (b"\x00\x01\x02", "request JSON: JSON is malformed: invalid character (byte 0)"),
        (b'"' + b'\\"' * 100_000 + b"NaN", "request JSON: input data was truncated"),
    ],
)
def test_malformed_json_is_explained(served: ServedVersion, body: bytes, text: str) -> None:
    assert refusal(served, body).startswith(f"InvalidInput: {text}")


X = {"name": "x", "shape": [2, 4], "datatype": "FP32"}


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        ({**X, "name": "w"}, "input 'w': no such input; expected 'x', 'ids'"),
        ({**X, "datatype": "FP64"}, "input 'x': expected datatype FP32, got 'FP64'"),
        ({**X, "shape": [2]}, "input 'x': expected shape [-1, 4] (-1 = any), got [2]"),
        ({**X, "shape": [2, 5]}, "input 'x': expected shape [-1, 4] (-1 = any), got [2, 5]"),
        (
            {**X, "shape": [-1, 4]},
            "input 'x': expected shape [-1, 4] (-1 = any) with the sizes that were sent, each at "
            "least 0, got [-1, 4]",
        ),
        ({**X, "shape": ["2", 4]}, "request JSON: inputs[0].shape[0]: expected int, got str"),
        ({**X, "shape": [2.5, 4]}, "request JSON: inputs[0].shape[0]: expected int, got float"),
        (X, "input 'x': expected 'data', or 'binary_data_size' in its parameters"),
        ({**X, "data": None}, "input 'x': "),
        ({**X, "data": 7}, "input 'x': "),
        ({**X, "data": "abcdefghijklmnopq"}, "input 'x': "),
        ({**X, "data": [1] * 7}, "input 'x': expected 8"),
        ({**X, "data": [1] * 9}, "input 'x': "),
        ({**X, "data": [1, 2, 3, 4, 5, 6, 7, "8"]}, "input 'x': "),
        ({**X, "data": [1, 2, 3, 4, 5, 6, 7, None]}, "input 'x': "),
        ({**X, "data": [1, 2, 3, 4, 5, 6, 7, {}]}, "input 'x': "),
        ({**X, "data": [1, 2, 3, 4, 5, 6, 7, 1e39]}, "input 'x': "),
        (
            {**X, "shape": [65_536, 4], "data": [1]},
            "input 'x': expected 262144 elements for shape [65536, 4], found 1",
        ),
        ({**X, "data": []}, "input 'x': expected 8 elements for shape [2, 4], found 0"),
        ({**X, "data": [1, 2]}, "input 'x': expected 8 elements for shape [2, 4], found 2"),
        ({**X, "data": [[1], [], [2]]}, "input 'x': expected 8 elements for shape [2, 4], found 2"),
        ({**X, "data": [1, "2"]}, "input 'x': element 1 "),
        ({**X, "data": "1,2"}, "input 'x': "),
        (
            {**X, "data": [0] * 8, "parameters": {"binary_data_size": 32}},
            "input 'x': has both 'data' and 'binary_data_size'",
        ),
        ({**X, "parameters": {"binary_data_size": 32}}, "input 'x': binary_data_size is 32, but 0"),
        ({**X, "parameters": {"binary_data_size": -1}}, "input 'x': binary_data_size is -1"),
        ({**X, "parameters": {"binary_data_size": "1"}}, "request JSON: inputs[0].parameters"),
    ],
)
def test_a_wrong_input_is_explained(
    served: ServedVersion, tensor: dict[str, Any], text: str
) -> None:
    assert refusal(served, request_json(tensor)).startswith(f"InvalidInput: {text}")


def test_shared_memory_is_not_supported(served: ServedVersion) -> None:
    region = {**X, "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 32}}

    assert refusal(served, request_json(region)).startswith("Unsupported: input 'x': shared memory")


def test_missing_double_and_uneven_inputs_are_refused(served: ServedVersion) -> None:
    x = tensor("x", ROWS, "FP32", data=ROWS.tolist())
    ids = tensor("ids", np.zeros(3), "INT64", data=[1, 2, 3])

    assert "input 'ids' is missing" in refusal(served, request_json(x))
    assert "input 'x' is given twice" in refusal(served, request_json(x, x))
    assert "'x' has 2, 'ids' has 3" in refusal(served, request_json(x, ids))


@pytest.mark.parametrize(
    ("size", "data", "text"),
    [
        (31, bytes(31), "input 'x': expected 32 bytes for FP32 [2, 4], got 31"),
        (32, bytes(31), "input 'x': binary_data_size is 32, but 31 bytes are left of the body"),
        (32, bytes(33), "1 bytes behind the last tensor"),
    ],
)
def test_binary_data_must_add_up(size: int, data: bytes, text: str) -> None:
    head = request_json({**X, "parameters": {"binary_data_size": size}})

    assert text in refusal(one_input("FP32", (-1, 4)), head + data, len(head))


@pytest.mark.parametrize("json_bytes", [1, 20, 10_000])
def test_a_wrong_length_of_the_json_is_refused(served: ServedVersion, json_bytes: int) -> None:
    body, _ = binary(("x", "FP32", ROWS))

    assert refusal(served, body, json_bytes).startswith("InvalidInput: ")


def test_bools_beyond_one_are_refused() -> None:
    body, json_bytes = binary(("x", "BOOL", np.array([1, 2], np.uint8)))

    assert "expected BOOL bytes of 0 or 1" in refusal(one_input("BOOL"), body, json_bytes)


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (b"\x01\0\0\0", "expected 2 BYTES elements with a 4-byte length each, got 4 bytes"),
        (b"\x05\0\0\0abc\0", "element 0: expected 5 bytes, got 4"),
        (b"\x03\0\0\0abc\0", "expected 2 BYTES elements, got 1"),
        (b"\x00\0\0\0\xff\xff\xff\xff", "element 1: 4294967295 bytes, at most 1048576 allowed"),
        (b"\x00\0\0\0\x00\0\0\0a", "1 bytes behind its 2 BYTES elements"),
    ],
)
def test_damaged_binary_strings_are_refused(packed: bytes, text: str) -> None:
    served = one_input("BYTES")
    head = request_json(
        tensor("x", np.zeros(2), "BYTES", parameters={"binary_data_size": len(packed)})
    )

    assert text in refusal(served, head + packed, len(head))


@pytest.mark.parametrize(
    "data", [[["a"], "b"], ["a", 7], [["a", None]], {"a": 1}, 7, ["a", float("nan")]]
)
def test_json_strings_must_be_strings(data: Any) -> None:
    body = request_json(tensor("x", np.zeros(2), "BYTES", data=data, filler="." * 10))

    assert refusal(one_input("BYTES"), body).startswith("InvalidInput: input 'x': ")


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "body"),
    [
        (Limits(max_json_depth=3), x_request()),
        (Limits(max_json_elements=10), x_request()),
        (Limits(max_string_bytes=3), x_request()),
        (Limits(max_tensors=1), request_json(X, X)),
        (Limits(max_dims=1), x_request()),
        (Limits(max_elements=7), x_request()),
        (Limits(max_rows=1), x_request(parameters=BINARY)),
    ],
)
def test_limits_are_kept(scored: ServedVersion, limits: Limits, body: bytes) -> None:
    assert refusal(scored, body, limits=limits).startswith("TooLarge: ")


@pytest.mark.parametrize("datatype", ["FP32", "BYTES", "BOOL"])
def test_too_many_rows_are_refused_before_an_element_is_read(datatype: Datatype) -> None:
    unreadable = np.full((9, 2), 7, np.uint8)
    for served in (one_input(datatype, (-1, 2)), one_input(datatype, (-1, -1))):
        in_json = request_json(tensor("x", unreadable, datatype, data=[{"": 0}] * 18))
        in_binary, json_bytes = binary(("x", datatype, unreadable))
        for body, head in ((in_json, None), (in_binary, json_bytes)):
            assert refusal(served, body, head, limits=Limits(max_rows=9)).startswith(
                "InvalidInput: "
            )
            assert refusal(served, body, head, limits=Limits(max_rows=8)) == (
                "TooLarge: input 'x': 9 rows, at most 8 allowed"
            )


def test_overflowing_shapes_are_refused_before_anything_is_allocated() -> None:
    served = one_input("FP32", (-1, -1))
    for shape in ([2**40, 2**40], [10**30, 1], [10**9, 1]):
        body = request_json({**X, "shape": shape, "data": [1]})

        assert refusal(served, body).startswith("TooLarge: input 'x': ")


def test_a_large_document_of_many_tensors_is_not_built() -> None:
    tensors = ",".join(['{"name":"","shape":[],"datatype":""}'] * 130_000)

    text = refusal(one_input("FP32"), f'{{"inputs":[{tensors}]}}'.encode())

    assert text.startswith("TooLarge: request JSON: more objects than 1024 tensors can have")


@pytest.mark.parametrize("text", ["a", "{"])
def test_a_large_document_of_short_strings_does_not_hold_up_others(text: str) -> None:
    data = b",".join([json.dumps(text).encode()] * 8_000_000)
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[%b]}]}' % data
    served = one_input("FP32", (-1, 4))

    # 0.8 s each time if one call went through all of them; a busy machine is slow by chance only.
    assert min(longest_pause(lambda: refusal(served, body)) for _ in range(4)) < 0.5


def longest_pause(work: Callable[[], object]) -> float:
    """Longest time in seconds that this thread could not run while another did `work`."""
    worker = threading.Thread(target=work)
    longest, last = 0.0, time.monotonic()
    worker.start()
    while worker.is_alive():
        time.sleep(0.001)
        last, before = time.monotonic(), last
        longest = max(longest, last - before)
    return longest


def test_a_large_shape_is_not_built() -> None:
    body = request_json({**X, "shape": [1] * 2_000_000})

    assert refusal(one_input("FP32"), body).startswith("TooLarge: input 'x': shape has more than 8")


def test_a_large_document_is_read_like_a_small_one() -> None:
    served = declared_version([("x", "FP32", (-1, 4)), ("s", "BYTES", (-1,))])
    rows = np.arange(4 * 60_000, dtype=np.float32).reshape(-1, 4)
    braces = ["{" * 100] * 60_000
    body = request_json(
        tensor("x", rows, "FP32", data=rows.ravel().tolist()),
        tensor("s", np.zeros(60_000), "BYTES", data=braces),
        id="large",
        parameters={"timeout": 1000},
    )
    assert len(body) > 4 * 2**20

    request, form = decode(served, body)

    assert np.array_equal(request.inputs[0], rows)
    assert request.inputs[1][7] == braces[7].encode()
    assert (form.id, request.deadline) == ("large", NOW + 0.001)


def test_a_large_document_with_bare_tokens_is_measured_too() -> None:
    served = one_input("FP32", (-1,))
    values = np.full(1_100_000, np.nan, np.float32)
    body = request_json(tensor("x", values, "FP32", data=[float("nan")] * len(values)))

    request, _ = decode(served, body, limits=Limits(max_rows=2**21))
    assert np.isnan(request.inputs[0]).all()

    body = body.replace(b'"shape": [', b'"shape": [' + b"1, " * 300)
    assert refusal(served, body).startswith("TooLarge: input 'x': 3")
