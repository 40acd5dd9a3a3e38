"""What is read from a model's declarations, and how models that cannot be served are refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from anabranch_graph_opt.signature import read_signature
from anabranch_wire.errors import Corrupt, InvalidInput, NotFound, Unsupported


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def test_inputs_and_outputs_keep_the_order_of_the_graph() -> None:
    signature = read_signature(
        model(
            """g (int64[batch] uid, float[batch, 3] x, bool[2] flag)
            => (float[batch, 3] y, bool[2] z)
            { y = Relu(x) z = Not(flag) }"""
        )
    )

    assert [(s.name, s.datatype, s.shape) for s in signature.inputs] == [
        ("uid", "INT64", (-1,)),
        ("x", "FP32", (-1, 3)),
        ("flag", "BOOL", (2,)),
    ]
    assert [s.name for s in signature.outputs] == ["y", "z"]
    assert signature.symbols["x"] == ("batch", None)
    assert signature.opset == 17


def test_initializers_that_double_as_inputs_are_weights() -> None:
    proto = model(
        "g (float[n] x, float[1] w) => (float[n] y) <float[1] w = {2.0}> { y = Mul(x, w) }"
    )

    assert [spec.name for spec in read_signature(proto).inputs] == ["x"]


def test_bytes_and_a_path_give_the_same(tmp_path: Path) -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)

    assert read_signature(path) == read_signature(proto.SerializeToString())


def test_external_weights_are_not_opened(tmp_path: Path) -> None:
    proto = model("g (float[n, 2] x) => (float[n, 2] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()

    assert [spec.shape for spec in read_signature(path).inputs] == [(-1, 2)]


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        ("seq(float[n]) x", "sequence"),
        ("optional(float[n]) x", "optional"),
        ("map(int64, float[n]) x", "is a map"),
        ("complex64[n] x", "COMPLEX64"),
        ("float8e4m3fn[n] x", "FLOAT8E4M3FN"),
        ("float[] x", "declares no rank"),
    ],
)
def test_what_no_tensor_protocol_carries_is_unsupported(declaration: str, complaint: str) -> None:
    proto = model(f"g ({declaration}) => (float[n] y) {{ y = Identity(x) }}")

    with pytest.raises(Unsupported, match=complaint):
        read_signature(proto)


def test_a_size_of_minus_one_is_symbolic() -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1

    assert read_signature(proto).inputs[0].shape == (-1,)


@pytest.mark.parametrize("content", [b"", b"not onnx", b"\x08"])
def test_other_files_are_corrupt(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    with pytest.raises(Corrupt, match=r"model\.onnx: not an ONNX model"):
        read_signature(path)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    whole = model("g (float[n] x) => (float[n] y) { y = Relu(x) }").SerializeToString()
    path = tmp_path / "model.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises((Corrupt, InvalidInput, Unsupported)):
            read_signature(path)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"^nothing\.onnx: no such file$"):
        read_signature(tmp_path / "nothing.onnx")


def test_a_model_without_the_default_operator_set_is_invalid() -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("com.example", 1))

    with pytest.raises(InvalidInput, match="operator set"):
        read_signature(proto)


def test_an_input_declared_twice_is_invalid() -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    proto.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]))

    with pytest.raises(InvalidInput):
        read_signature(proto)
