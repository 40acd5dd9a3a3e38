"""Every real model without its lookups: the same numbers, and every embedding out of the graph."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.reference_lookups import look_up
from anabranch_graph_opt.running import Array
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_wire.weight_targets import ToDense

MODELS = corpus_models() or tree_models()

STAY = {
    # A position table: its ids depend on the shape of the input alone.
    ("torch_rechub_bst_ts17", "m.pos_embedding.weight"),
}
TIED = {
    # One initializer is the table and, transposed, the last layer.
    "torch_rechub_narm_ts17": {"m.item_emb.weight": "onnx::MatMul_183"},
    "torch_rechub_stamp_ts17": {"m.item_emb.weight": "onnx::MatMul_70"},
}

MAX_DIFF = 1e-5
"""Of float32 scores: sums of the dense part may be taken in another order."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_scores_are_those_of_the_original(model: CorpusModel) -> None:
    optimized = optimize(model.folder / "model.onnx", OptimizeOptions(min_table_bytes=0))

    for batch, answers in zip(model.batches(), model.expected(), strict=True):
        outputs = run(optimized, batch)
        for name, expected in answers.items():
            assert outputs[name].shape == expected.shape
            assert np.abs(outputs[name] - expected).max(initial=0) <= MAX_DIFF


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_embeddings_leave_and_nothing_else_does(model: CorpusModel) -> None:
    optimized = optimize(model.folder / "model.onnx", OptimizeOptions(min_table_bytes=0))

    stay = {verdict.table for verdict in optimized.verdicts if not verdict.cut}
    assert stay == {table for name, table in STAY if name == model.name}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_weight_can_be_updated(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    optimized = optimize(path, OptimizeOptions(min_table_bytes=0))

    assert set(optimized.weights) == set(floats_of(path))
    twins = {
        name: target.name
        for name, targets in optimized.weights.items()
        for target in targets
        if isinstance(target, ToDense) and target.transform == "transpose"
    }
    assert twins == TIED.get(model.name, {})


def test_small_tables_stay_in_the_graph() -> None:
    model = MODELS[0]

    optimized = optimize(model.folder / "model.onnx", OptimizeOptions(min_table_bytes=2**40))

    assert optimized.tables == ()
    assert optimized.lookups == ()
    assert all("min_table_bytes" in verdict.reason for verdict in optimized.verdicts)
    for batch, answers in zip(model.batches(), model.expected(), strict=True):
        outputs = run(optimized, batch)
        for name, expected in answers.items():
            assert np.abs(outputs[name] - expected).max(initial=0) <= MAX_DIFF


def run(optimized: Optimized, batch: Mapping[str, Array]) -> dict[str, Array]:
    """Compute a batch as a server does, lookups by their definition."""
    runner = OrtModelRunner()
    arrays = dict(batch)
    if optimized.prelude is not None:
        wanted = {str(value.name) for value in optimized.prelude.graph.inputs}
        taken = {name: array for name, array in batch.items() if name in wanted}
        arrays.update(runner.run(graph_bytes(optimized.prelude), taken))
    buffers = look_up(optimized, arrays, rows_of(optimized, batch))
    passed = {name: batch[name] for name in optimized.pass_through}
    return runner.run(graph_bytes(optimized.dense), {**passed, **buffers})


def rows_of(optimized: Optimized, batch: Mapping[str, Array]) -> int:
    varying = [spec.name for spec in optimized.inputs if spec.shape[:1] == (-1,)]
    return len(batch[varying[0]]) if varying else 1


def floats_of(path: Path) -> list[str]:
    model = open_model(path)
    return [
        name
        for name, value in model.graph.initializers.items()
        if value.dtype is not None and value.dtype.is_floating_point() and value.uses()
    ]
