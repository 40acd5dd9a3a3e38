"""The model and the request bodies of the serving benchmarks: a click model without embeddings.

416 -> 1024 -> 512 -> 1, float32, any number of rows. All numbers come from one seed, so every
server and every round is measured on the same bytes. `python benchmarks/ctr_mlp.py FOLDER` writes
what `write` describes.
"""

import argparse
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anabranch_wire import oip

__all__ = ["COLUMNS", "INPUT", "MODEL", "OUTPUT", "Body", "Form", "Material", "make_rows", "write"]

MODEL: Final = "ctr"
INPUT: Final = "x"
OUTPUT: Final = "score"
COLUMNS: Final = 416

Form: TypeAlias = Literal["binary", "json", "grpc"]
"""Open Inference Protocol over HTTP with binary tensors, as JSON, or over gRPC (raw contents)."""

_WIDTHS: Final = (COLUMNS, 1024, 512, 1)
_SEED: Final = 416
_DECIMALS: Final = 4  # of a number in a JSON body: what a feature pipeline sends, not float noise


@dataclass(frozen=True, slots=True)
class Body:
    """One request body in a file.

    Attributes:
        form: how it is encoded.
        rows: rows in it.
        path: the file; for `grpc` with the 5-byte frame header, as it goes over HTTP/2.
        target: what to POST it to.
        headers: HTTP headers that it needs.
        others: bodies of the same headers that are sent in turn with it.
    """

    form: Form
    rows: int
    path: Path
    target: str
    headers: dict[str, str]
    others: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that `write` wrote.

    Attributes:
        repository: model repository: `ctr/1/model.onnx`.
        graph: that file.
        bodies: one for each form and number of rows.
    """

    repository: Path
    graph: Path
    bodies: tuple[Body, ...]

    def body(self, form: Form, rows: int) -> Body:
        """The body of that form and number of rows.

        Raises:
            KeyError: it was not asked for.
        """
        for body in self.bodies:
            if (body.form, body.rows) == (form, rows):
                return body
        raise KeyError(f"{form} with {rows} rows")


def main() -> None:
    """Write model and bodies to the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 256])
    options = parser.parse_args()
    material = write(options.folder, options.rows)
    for path in (material.graph, *(body.path for body in material.bodies)):
        print(f"{path.stat().st_size:>9,} {path}")


def write(folder: Path, rows: Iterable[int]) -> Material:
    """Write the model and a body of every form for every number of rows.

    Args:
        folder: made if it is not there; gets `models/` and `bodies/`.
        rows: numbers of rows.
    """
    graph = folder / "models" / MODEL / "1" / "model.onnx"
    graph.parent.mkdir(parents=True, exist_ok=True)
    graph.write_bytes(_model().SerializeToString())
    (folder / "bodies").mkdir(exist_ok=True)
    bodies = tuple(body for n in rows for body in _write_bodies(folder / "bodies", n))
    return Material(graph.parents[2], graph, bodies)


def make_rows(rows: int) -> NDArray[np.float32]:
    """Return `(rows, 416)` float32 in [0, 1), of four decimals, the same at every call."""
    values = np.random.default_rng(_SEED).random((rows, COLUMNS)).round(_DECIMALS)
    return values.astype(np.float32)


def _model() -> onnx.ModelProto:
    """The graph, with weights scaled so that activations neither fade nor grow."""
    random = np.random.default_rng(_SEED)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    current = INPUT
    for layer, (fan_in, fan_out) in enumerate(pairwise(_WIDTHS)):
        matrix = random.normal(scale=fan_in**-0.5, size=(fan_in, fan_out)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"dense{layer}.weight"))
        weights.append(numpy_helper.from_array(np.zeros(fan_out, np.float32), f"dense{layer}.bias"))
        gemm = [current, f"dense{layer}.weight", f"dense{layer}.bias"]
        nodes.append(helper.make_node("Gemm", gemm, [f"dense{layer}"]))
        is_last = layer == len(_WIDTHS) - 2
        current = OUTPUT if is_last else f"relu{layer}"
        nodes.append(
            helper.make_node("Sigmoid" if is_last else "Relu", [f"dense{layer}"], [current])
        )
    graph = helper.make_graph(
        nodes,
        "ctr_mlp",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", COLUMNS])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", 1])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def _write_bodies(folder: Path, rows: int) -> list[Body]:
    """Write the same rows in every form."""
    values = make_rows(rows)
    over_http = f"/v2/models/{MODEL}/infer"
    header, tensor = _binary(values)
    return [
        _write_body(
            Body(
                form="binary",
                rows=rows,
                path=folder / f"binary.{rows}",
                target=over_http,
                headers={
                    "Content-Type": "application/octet-stream",
                    "Inference-Header-Content-Length": str(len(header)),
                },
            ),
            header + tensor,
        ),
        _write_body(
            Body(
                form="json",
                rows=rows,
                path=folder / f"json.{rows}",
                target=over_http,
                headers={"Content-Type": "application/json"},
            ),
            _json(values),
        ),
        _write_body(
            Body(
                form="grpc",
                rows=rows,
                path=folder / f"grpc.{rows}",
                target="/inference.GRPCInferenceService/ModelInfer",
                headers={"content-type": "application/grpc", "te": "trailers"},
            ),
            _grpc(values),
        ),
    ]


def _write_body(body: Body, content: bytes) -> Body:
    body.path.write_bytes(content)
    return body


def _binary(values: NDArray[np.float32]) -> tuple[bytes, bytes]:
    """JSON header and raw tensor of the binary extension; the answer is asked for as binary too."""
    tensor = values.astype("<f4").tobytes()
    header = {
        "inputs": [_declaration(values) | {"parameters": {"binary_data_size": len(tensor)}}],
        "outputs": [{"name": OUTPUT, "parameters": {"binary_data": True}}],
    }
    return msgspec.json.encode(header), tensor


def _json(values: NDArray[np.float32]) -> bytes:
    """JSON with the values flat, in row-major order."""
    data = values.astype(np.float64).round(_DECIMALS).ravel().tolist()
    return msgspec.json.encode({"inputs": [_declaration(values) | {"data": data}]})


def _declaration(values: NDArray[np.float32]) -> dict[str, object]:
    return {"name": INPUT, "shape": list(values.shape), "datatype": "FP32"}


def _grpc(values: NDArray[np.float32]) -> bytes:
    """One uncompressed gRPC message: flag byte, 4-byte big-endian length, protobuf."""
    request = oip.ModelInferRequest(model_name=MODEL)
    request.inputs.add(name=INPUT, datatype="FP32", shape=values.shape)
    request.raw_input_contents.append(values.astype("<f4").tobytes())
    message = request.SerializeToString()
    return struct.pack(">?I", False, len(message)) + message


if __name__ == "__main__":
    main()
