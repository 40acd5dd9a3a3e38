from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.rpc.known import Contents, KnownMessage
from anabranch_server.rpc.reading import RequestReader
from anabranch_testing.rpc import HeldGroup, raw_request
from anabranch_wire.oip import ModelInferRequest
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

MODEL = DenseModel(
    Path("none/model.onnx"),
    (TensorSpec("user", "INT64", (-1,)), TensorSpec("x", "FP32", (-1, 2))),
    (TensorSpec("y", "FP32", (-1, 1)), TensorSpec("z", "FP32", (-1, 1))),
    RowLayout(True, 1, (0, 0), (0, 0)),
)


def serve(version: int = 1, *, users: tuple[str, ...] = ()) -> ServedVersion:
    rules = InputRules(MODEL.inputs, MODEL.rows.input_axes, users, 1_000_000)
    return ServedVersion(
        snapshot=Snapshot("m", version),
        model=MODEL,
        rules=rules,
        output_index={"y": 0, "z": 1},
        group=HeldGroup().serve(MODEL).group,
        user_inputs=users,
    )


def request(user: list[int], x: list[list[float]]) -> ModelInferRequest:
    return raw_request("m", {"user": np.array(user, np.int64), "x": np.array(x, np.float32)})


def read(reader: RequestReader, body: bytes, served: ServedVersion) -> tuple[Contents, bool]:
    """The contents, and whether they were read from memory."""
    opened = reader.open(body)
    return reader.read(opened, served), isinstance(opened.form, KnownMessage)


def values(contents: Contents) -> list[object]:
    return [array.tolist() for array in contents.inputs]


@pytest.fixture
def reader() -> RequestReader:
    return RequestReader(Limits())


def test_the_second_message_of_a_kind_is_known_and_has_its_own_values(
    reader: RequestReader,
) -> None:
    served = serve()
    first = request([1, 2], [[1, 2], [3, 4]])
    first.outputs.add(name="z")
    first.parameters["timeout"].int64_param = 1_500_000
    first.parameters["priority"].int64_param = 1
    second = ModelInferRequest()
    second.CopyFrom(first)
    second.raw_input_contents[:] = request([7, -8], [[5, 6], [7, 8]]).raw_input_contents

    # A map has no order of its own, and what is known are bytes.
    bodies = [message.SerializeToString(deterministic=True) for message in (first, second)]
    unknown, was_known = read(reader, bodies[0], served)
    known, is_known = read(reader, bodies[1], served)

    assert (was_known, is_known) == (False, True)
    assert values(unknown) == [[1, 2], [[1, 2], [3, 4]]]
    assert values(known) == [[7, -8], [[5, 6], [7, 8]]]
    assert (known.rows, known.outputs, known.timeout_s, known.priority) == (2, (1,), 1.5, 1)


def test_views_are_read_only_and_keep_their_message(reader: RequestReader) -> None:
    served = serve()
    body = request([1], [[2, 3]]).SerializeToString()
    read(reader, body, served)

    contents, _ = read(reader, body, served)

    assert not any(array.flags.writeable for array in contents.inputs)
    assert values(contents) == [[1], [[2, 3]]]


def test_inputs_in_another_order_come_in_the_models(reader: RequestReader) -> None:
    served = serve()
    turned = raw_request(
        "m", {"x": np.array([[2, 3]], np.float32), "user": np.array([1], np.int64)}
    ).SerializeToString()

    read(reader, turned, served)
    contents, is_known = read(reader, turned, served)

    assert is_known
    assert values(contents) == [[1], [[2, 3]]]


def test_fields_may_stand_in_any_order(reader: RequestReader) -> None:
    whole = request([1], [[2, 3]])
    raws = ModelInferRequest(raw_input_contents=whole.raw_input_contents).SerializeToString()
    whole.ClearField("raw_input_contents")
    body = raws + whole.SerializeToString()
    served = serve()

    read(reader, body, served)
    contents, is_known = read(reader, body, served)

    assert is_known
    assert values(contents) == [[1], [[2, 3]]]


def test_one_user_for_all_rows_is_repeated_from_memory_too(reader: RequestReader) -> None:
    served = serve(users=("user",))
    read(reader, request([1], [[1, 2], [3, 4]]).SerializeToString(), served)

    contents, is_known = read(reader, request([9], [[5, 6], [7, 8]]).SerializeToString(), served)

    assert is_known
    assert contents.rows == 2
    assert values(contents) == [[9, 9], [[5, 6], [7, 8]]]


def test_another_load_of_the_model_reads_anew(reader: RequestReader) -> None:
    body = request([1], [[2, 3]]).SerializeToString()
    old, new = serve(1), serve(2)
    read(reader, body, old)

    first, _ = read(reader, body, new)
    opened = reader.open(body)

    assert values(first) == [[1], [[2, 3]]]
    assert isinstance(opened.form, KnownMessage)
    assert opened.form.rules is new.rules


def test_the_same_size_with_another_shape_is_not_known(reader: RequestReader) -> None:
    served = serve()
    read(reader, request([1], [[2, 3]]).SerializeToString(), served)
    other = request([1], [[2, 3]])
    other.inputs[1].shape[:] = [2, 1]

    opened = reader.open(other.SerializeToString())

    assert isinstance(opened.form, ModelInferRequest)


def with_id(message: ModelInferRequest) -> None:
    message.id = "r-1"


def without_rows(message: ModelInferRequest) -> None:
    message.CopyFrom(raw_request("m", {"user": empty((0,)), "x": empty((0, 2), np.float32)}))


def typed(message: ModelInferRequest) -> None:
    message.ClearField("raw_input_contents")
    message.inputs[0].contents.int64_contents.append(1)
    message.inputs[1].contents.fp32_contents.extend([2, 3])


def with_long_options(message: ModelInferRequest) -> None:
    message.parameters["other"].string_param = "x" * 10_000


def empty(shape: tuple[int, ...], dtype: type[np.generic] = np.int64) -> NDArray[np.generic]:
    return np.empty(shape, dtype)


@pytest.mark.parametrize("change", [with_id, without_rows, typed, with_long_options])
def test_what_will_not_come_again_or_is_too_long_is_not_kept(
    reader: RequestReader, change: object
) -> None:
    assert callable(change)
    message = request([1], [[2, 3]])
    change(message)
    body = message.SerializeToString()
    read(reader, body, serve())

    assert isinstance(reader.open(body).form, ModelInferRequest)


def test_strings_and_truth_values_are_looked_at_each_time(reader: RequestReader) -> None:
    for datatype, raw in (("BOOL", b"\1"), ("BYTES", b"\1\0\0\0a")):
        spec = TensorSpec("x", datatype, (-1,))  # type: ignore[arg-type]  # to be refused, or a stand-in
        model = DenseModel(Path("none/model.onnx"), (spec,), (), RowLayout(True, 1, (0,), ()))
        served = HeldGroup().serve(model, "m")
        message = ModelInferRequest(model_name="m", raw_input_contents=[raw])
        message.inputs.add(name="x", datatype=datatype, shape=[1])
        read(reader, message.SerializeToString(), served)

        assert isinstance(reader.open(message.SerializeToString()).form, ModelInferRequest)


def test_memory_is_bounded(reader: RequestReader) -> None:
    served = serve()
    for rows in range(1, 400):
        body = request([1] * rows, [[2, 3]] * rows).SerializeToString()
        read(reader, body, served)
    of_one_size = [request([1], [[2, 3]]) for _ in range(10)]
    for index, message in enumerate(of_one_size):
        message.parameters["timeout"].int64_param = 10 + index
        read(reader, message.SerializeToString(), served)

    opened = [reader.open(message.SerializeToString()).form for message in of_one_size]

    assert [isinstance(form, KnownMessage) for form in opened] == [False] * 6 + [True] * 4
