"""Weights of a version's graphs under the names that their trainer knows them by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.model_source import open_model
from anabranch_model_store.containment import read_inside
from anabranch_model_store.cut_tables import TensorRows
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.onnx_files import OnnxFile, check_onnx_file
from anabranch_model_store.planned_versions import is_planned
from anabranch_model_store.version_contents import find_onnx_file, malformed_graphs_refused
from anabranch_model_store.version_files import VersionFiles
from anabranch_wire.plan import FILE_NAME, Plan, decode
from anabranch_wire.weight_targets import ToDense

__all__ = ["GraphWeight", "graph_weights"]

Array = NDArray[np.generic]

_MAX_PLAN_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class GraphWeight:
    """An initializer of numbers.

    Attributes:
        tensor: its numbers; external ones are mapped when they are asked for.
        is_turned: whether the graph holds the transpose of what its trainer knows.
        is_table: whether the graph looks rows of it up by their numbers.
    """

    tensor: ir.TensorProtocol
    is_turned: bool = False
    is_table: bool = False

    @property
    def can_be_rows(self) -> bool:
        """Whether it is a matrix of a type that rows of tables have."""
        return (
            len(self.tensor.shape) == 2
            and not self.is_turned
            and TensorRows.can_read(self.tensor)
            and min(self.tensor.shape.numpy()) > 0
        )

    def array(self) -> Array:
        """Return all of its numbers, as its trainer knows them."""
        array: Array = self.tensor.numpy()
        return array.T if self.is_turned else array


def graph_weights(files: VersionFiles, meaning: ModelMeaning) -> dict[str, GraphWeight]:
    """Return the weights of a version by name, in the order of its graphs.

    Where an optimiser moved a weight as a whole, it has the name that it had before; parts of one
    have those of the optimised graph.

    Args:
        files: of the version.
        meaning: its model.yaml.

    Raises:
        AnabranchError: a graph cannot be read.
    """
    if not is_planned(files):
        return dict(_weights(find_onnx_file(files, meaning)))
    plan = decode(read_inside(files.folder, FILE_NAME, _MAX_PLAN_BYTES))
    allow = "custom_ops" in meaning.optimize.allow
    found: dict[str, GraphWeight] = {}
    for file in filter(None, (plan.graphs.dense, plan.graphs.user)):
        for name, weight in _weights(check_onnx_file(files, file, allow_custom_ops=allow)):
            found.setdefault(name, weight)
    return _renamed(found, plan)


def _renamed(found: Mapping[str, GraphWeight], plan: Plan) -> dict[str, GraphWeight]:
    """Return weights of optimised graphs under the names of the original, where they are whole."""
    originals: dict[str, tuple[str, bool]] = {}
    for original, targets in plan.weights.items():
        places = [target for target in targets if isinstance(target, ToDense)]
        whole = [one for one in places if one.transform in ("none", "transpose")]
        if whole and whole[0].name not in originals:
            originals[whole[0].name] = (original, whole[0].transform == "transpose")
    renamed: dict[str, GraphWeight] = {}
    for name, weight in found.items():
        original, is_turned = originals.get(name, (name, False))
        renamed[original] = GraphWeight(weight.tensor, is_turned, weight.is_table)
    return renamed


def _weights(onnx_file: OnnxFile) -> Iterator[tuple[str, GraphWeight]]:
    with malformed_graphs_refused(onnx_file):
        graph = open_model(onnx_file.path).graph
        looked_up = {
            node.inputs[0].name
            for node in graph.all_nodes()
            if node.op_type == "Gather" and node.inputs and node.inputs[0] is not None
        }
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if tensor is None or tensor.dtype == ir.DataType.STRING:
                continue
            weight = GraphWeight(tensor)
            is_table = name in looked_up and weight.can_be_rows
            yield name, GraphWeight(tensor, is_table=is_table)
