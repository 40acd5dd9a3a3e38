"""The model of the benchmarks of deltas: one table of many rows, looked up for several features.

A candidate has `FEATURES` ids; their rows, side by side, go through 128 -> 256 -> 64 -> 1. A second
output, `stamp`, is the first number of the first row as it lies in the table: a delta that writes
its own number there can be seen in an answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anabranch_publish import Rows, publish_version
from lookup_material import keys_of, numbers_of, zipf
from openloop import post

__all__ = [
    "DIM",
    "FEATURES",
    "MODEL",
    "PROBE_KEY",
    "TABLE",
    "FreshModel",
    "dense_weights",
    "item_keys",
    "requests",
]

MODEL: Final = "fresh"
TABLE: Final = "items"
DIM: Final = 16
FEATURES: Final = 8
PROBE_KEY: Final = 7
"""A key that no row of the table has: only deltas write it."""

_WIDTHS: Final = (FEATURES * DIM, 256, 64, 1)
_SEED: Final = 86_400
_NAMES: Final = tuple(f"item_{index}" for index in range(FEATURES))


def item_keys(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the keys (n,) int64 of rows (n,) of the table."""
    return keys_of(0, numbers).view(np.int64)


def dense_weights(number: int) -> dict[str, NDArray[np.float32]]:
    """Return all weights of the graph as retraining number `number` made them."""
    random = np.random.default_rng((_SEED, number))
    weights: dict[str, NDArray[np.float32]] = {}
    for layer, (fan_in, fan_out) in enumerate(pairwise(_WIDTHS)):
        matrix = random.normal(scale=fan_in**-0.5, size=(fan_in, fan_out))
        weights[f"dense{layer}.weight"] = matrix.astype(np.float32)
        weights[f"dense{layer}.bias"] = np.zeros(fan_out, np.float32)
    return weights


@dataclass(frozen=True, slots=True)
class FreshModel:
    """A repository with version 1, and what a next version is made from.

    Attributes:
        repository: has `fresh/1`.
        graph: file of the dense part.
        meaning: its model.yaml.
        rows: of the table.
    """

    repository: Path
    graph: Path
    meaning: Path
    rows: int

    @property
    def folder(self) -> Path:
        """Of the model."""
        return self.repository / MODEL

    @classmethod
    def write(cls, folder: Path, rows: int, serving: str = "") -> "FreshModel":
        """Write the repository, and publish version 1.

        Args:
            folder: gets `models` and what they are made from.
            rows: of the table.
            serving: text of serving.yaml.
        """
        repository = folder / "models"
        (repository / MODEL).mkdir(parents=True)
        if serving:
            (repository / MODEL / "serving.yaml").write_text(serving)
        graph, meaning = folder / "dense.onnx", folder / "model.yaml"
        graph.write_bytes(_graph().SerializeToString())
        meaning.write_text(_meaning())
        model = cls(repository, graph, meaning, rows)
        model.publish(1, repository / MODEL)
        return model

    def publish(self, version: int, folder: Path) -> None:
        """Publish a version with all of its rows into a model's folder."""
        numbers = np.arange(self.rows)
        table = Rows(item_keys(numbers), numbers_of(numbers, DIM))
        publish_version(
            folder, self.graph, version=version, model_yaml=self.meaning, tables={TABLE: table}
        )


def requests(address: str, rows: int, batch: int, count: int) -> list[bytes]:
    """Return `count` different requests of `batch` candidates, popular rows most of all.

    Args:
        address: `host:port` that they are sent to.
        rows: of the table.
        batch: candidates of each.
        count: how many.
    """
    random = np.random.default_rng(_SEED)
    made = []
    for _ in range(count):
        drawn = [item_keys(zipf(random, rows, batch)) for _ in range(FEATURES)]
        made.append(request(address, drawn))
    return made


def request(address: str, keys: Sequence[NDArray[np.int64]]) -> bytes:
    """Return a request: keys (n,) of each feature, as binary tensors."""
    inputs = [
        {
            "name": name,
            "shape": [len(one)],
            "datatype": "INT64",
            "parameters": {"binary_data_size": one.nbytes},
        }
        for name, one in zip(_NAMES, keys, strict=True)
    ]
    head = msgspec.json.encode({"inputs": inputs, "parameters": {"binary_data_output": True}})
    body = head + b"".join(one.tobytes() for one in keys)
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return post(address, f"/v2/models/{MODEL}/infer", body, headers)


def _meaning() -> str:
    features = "\n".join(f"  - {{name: {name}, side: candidate, type: int64}}" for name in _NAMES)
    lookups = "\n".join(
        f"  - {{feature: {name}, table: {TABLE}, "
        f"output: {{input: emb, columns: [{index * DIM}, {(index + 1) * DIM}]}}}}"
        for index, name in enumerate(_NAMES)
    )
    return f"format: 1\nfeatures:\n{features}\nlookups:\n{lookups}\n"


def _graph() -> onnx.ModelProto:
    nodes, current = [], "emb"
    last = len(_WIDTHS) - 2
    for layer in range(last + 1):
        inputs = [current, f"dense{layer}.weight", f"dense{layer}.bias"]
        nodes.append(helper.make_node("Gemm", inputs, [f"sum{layer}"]))
        current = "score" if layer == last else f"layer{layer}"
        kind = "Sigmoid" if layer == last else "Relu"
        nodes.append(helper.make_node(kind, [f"sum{layer}"], [current]))
    nodes.append(helper.make_node("Slice", ["emb", "first", "second", "columns"], ["stamp"]))
    weights = [numpy_helper.from_array(array, name) for name, array in dense_weights(0).items()]
    for name, number in (("first", 0), ("second", 1), ("columns", 1)):
        weights.append(numpy_helper.from_array(np.array([number], np.int64), name))
    graph = helper.make_graph(
        nodes,
        MODEL,
        [helper.make_tensor_value_info("emb", TensorProto.FLOAT, ["N", FEATURES * DIM])],
        [
            helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N", 1]),
            helper.make_tensor_value_info("stamp", TensorProto.FLOAT, ["N", 1]),
        ],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
