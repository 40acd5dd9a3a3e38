"""Weights that layers of a whole graph hold in eight bits, found by comparing it with the original.

What a new weight would become there is not known, so deltas cannot bring one.
"""

from collections import Counter
from collections.abc import Set

import onnx_ir as ir

from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_model_store.deltas.graph_tensors import GraphTensors
from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_model_store.version_contents import find_onnx_file
from anabranch_model_store.version_files import list_version

__all__ = ["reduced_weights"]


def reduced_weights(target: DeltaTarget, graph: GraphTensors) -> Set[str]:
    """Return the weights of a graph that are used less often than in the original.

    Args:
        target: whose graph runs whole.
        graph: that runs.

    Raises:
        AnabranchError: the original cannot be read.
    """
    if not target.meaning.optimize.dense.startswith("int8"):
        return frozenset()
    files = list_version(target.folder, target.snapshot)
    original = find_onnx_file(files, target.meaning).path
    if original == graph.path.resolve():
        return frozenset()
    before = _uses(normalise(open_model(original)).model)
    after = _uses(open_model(graph.path))
    return frozenset(name for name in graph.tensors if after[name] != before[name])


def _uses(model: ir.Model) -> Counter[str]:
    return Counter(
        str(value.name)
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
        for value in node.inputs
        if value is not None
    )
