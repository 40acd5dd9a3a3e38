"""Small ONNX models written by tests."""

from pathlib import Path

import onnx

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_wire.tensors import TensorSpec

__all__ = ["lookup_model", "scale_model", "write_graph"]


def write_graph(folder: Path, text: str, opset: int = 17) -> Path:
    """Write the graph that `text` gives in the form of onnx.parser as `folder`/model.onnx."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    onnx.save(model, path)
    return path


def scale_model(folder: Path) -> DenseModel:
    """y = x @ [1, 10, 100, 1000] per row; x is [N, 4] FP32, y is [N, 1] FP32."""
    path = write_graph(
        folder,
        "scale (float[N, 4] x) => (float[N, 1] y) "
        "<float[4, 1] w = {1.0, 10.0, 100.0, 1000.0}> { y = MatMul(x, w) }",
    )
    return DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("y", "FP32", (-1, 1)),),
        RowLayout(True, 1, (0,), (0,)),
    )


def lookup_model(folder: Path) -> DenseModel:
    """y = table[ids], row i of the table is [i, i + 0.5]; ids beyond 0..4 fail in the graph."""
    path = write_graph(
        folder,
        "lookup (int64[N] ids) => (float[N, 2] y) "
        "<float[5, 2] table = {0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5}> "
        "{ y = Gather(table, ids) }",
    )
    return DenseModel(
        path,
        (TensorSpec("ids", "INT64", (-1,)),),
        (TensorSpec("y", "FP32", (-1, 2)),),
        RowLayout(True, 1, (0,), (0,)),
    )
