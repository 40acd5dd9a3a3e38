"""Real models with one operator put in that mixes rows: the proof must notice, or be right.

The operator is put behind some value of the graph, wherever the row axis of that value may be by
then. What the proof still calls independent (a weight, or columns, were hit) has to pass the check.
"""

import random
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from anabranch_graph_opt.row_check import check_rows
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, tree_models

MUTATIONS_PER_MODEL = 12

Mutation = Callable[[str, str], list[onnx.NodeProto]]
"""(name of a value, name of what takes its place) -> nodes."""


def running_sum(value: str, result: str) -> list[onnx.NodeProto]:
    return [helper.make_node("CumSum", [value, "mutation_axis"], [result])]


def reversal(value: str, result: str) -> list[onnx.NodeProto]:
    bounds = ["mutation_last", "mutation_before", "mutation_axes", "mutation_last"]
    return [helper.make_node("Slice", [value, *bounds], [result])]


def softmax(value: str, result: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Softmax", [value], [result], axis=0)]


def rotation(value: str, result: str) -> list[onnx.NodeProto]:
    cut = ["mutation_one", "mutation_far", "mutation_axes"]
    return [
        helper.make_node("Slice", [value, *cut], [f"{result}_tail"]),
        helper.make_node("Slice", [value, "mutation_axes", "mutation_one", "mutation_axes"],
                         [f"{result}_head"]),
        helper.make_node("Concat", [f"{result}_tail", f"{result}_head"], [result], axis=0),
    ]  # fmt: skip


def common_floor(value: str, result: str) -> list[onnx.NodeProto]:
    lowest = f"{result}_lowest"
    return [
        helper.make_node("ReduceMin", [value], [lowest]),
        helper.make_node("Sub", [value, lowest], [result]),
    ]


MUTATIONS: tuple[Mutation, ...] = (running_sum, reversal, softmax, rotation, common_floor)

CONSTANTS = {
    "mutation_axis": np.array(0),
    "mutation_axes": np.array([0]),
    "mutation_one": np.array([1]),
    "mutation_far": np.array([2**62]),
    "mutation_last": np.array([-1]),
    "mutation_before": np.array([-(2**62)]),
}


def mutated(model: onnx.ModelProto, place: int, mutation: Mutation) -> onnx.ModelProto:
    """The model with the mutation behind the first output of node `place`."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    node = result.graph.node[place]
    name = node.output[0]
    node.output[0] = f"{name}_before_mutation"
    for i, new in enumerate(mutation(node.output[0], name)):
        result.graph.node.insert(place + 1 + i, new)
    for constant, value in CONSTANTS.items():
        result.graph.initializer.append(numpy_helper.from_array(value.astype(np.int64), constant))
    return result


@pytest.mark.parametrize(
    "model", [m for m in tree_models() if m.row_independent], ids=lambda model: model.name
)
def test_mutations_are_noticed(model: CorpusModel) -> None:
    original = onnx.load(model.folder / "model.onnx")
    draw = random.Random(model.name)
    noticed = 0
    for _ in range(MUTATIONS_PER_MODEL):
        place = draw.randrange(len(original.graph.node))
        changed = mutated(original, place, draw.choice(MUTATIONS))
        proof = prove_rows(changed)
        noticed += not proof.independent
        if proof.independent:
            content = changed.SerializeToString()
            check = check_rows(
                OrtModelRunner(), content, read_signature(changed), proof, model.batches()
            )
            assert check.ok or "does not run" in check.difference, check.difference

    assert noticed > 0
