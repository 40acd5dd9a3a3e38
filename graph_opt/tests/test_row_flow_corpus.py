"""The verdict on every real model, and what running it says about the verdict.

Models whose rows were found independent when run one by one must be proven, models that only fail
for single rows must be proven for two and more, and no proof may be refuted by its check.
"""

import numpy as np
import pytest

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.row_check import check_rows
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.running import Array
from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_wire.tensors import TensorSpec

MODELS = corpus_models() or tree_models()

NEED_TWO_ROWS = {
    # They squeeze all axes of [N, width, 1], which for one row loses the row axis.
    "deepctr_torch_dcnmix_dynamo18",
    "deepctr_torch_dcnmix_ts17",
    "torch_rechub_dcnv2_dynamo18",
    "torch_rechub_dcnv2_ts17",
}
PICK_ROWS = {
    # They run their recurrent layers on the rows with a history alone.
    "deepctr_torch_dien_gru_ts17",
    "torch_rechub_dien_ts17",
}
FIXED_BATCH = {"own_fixed_batch_ts17"}
ONE_USER = {"own_user_broadcast_dynamo18", "own_user_broadcast_ts17"}


def test_the_whole_corpus_is_there() -> None:
    if not corpus_models():
        pytest.skip("no corpus beside the checkout: only the models in the tree are looked at")
    assert len(MODELS) == 113


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_verdict(model: CorpusModel) -> None:
    proof = prove_rows(model.folder / "model.onnx")

    assert proof.independent == (model.name not in FIXED_BATCH), proof.reason
    assert proof.min_rows == (2 if model.name in NEED_TWO_ROWS else 1)
    assert proof.paddable == proof.independent
    assert proof.splittable == (proof.independent and model.name not in PICK_ROWS)
    if model.row_independent:
        assert proof.independent
        assert set(proof.input_axes.values()) == {0}
    if proof.independent:
        assert set(proof.output_axes.values()) == {0}
    if model.name in ONE_USER:
        assert proof.input_axes == {"uid": None, "cand": 0}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_verdict_is_confirmed_on_given_and_on_made_up_inputs(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    proof = prove_rows(path)
    if not proof.independent:
        pytest.skip("nothing is claimed")
    signature = read_signature(path)
    given = [as_declared(batch, signature.inputs) for batch in model.batches()]
    made_up = ExampleInputs(signature, path).batch(6, np.random.default_rng(5))

    check = check_rows(OrtModelRunner(), path, signature, proof, [*given, made_up])

    assert check.ok, check.difference
    assert check.min_rows_found == proof.min_rows
    assert check.applied_to(proof) == proof


def as_declared(batch: dict[str, Array], inputs: tuple[TensorSpec, ...]) -> dict[str, Array]:
    return {spec.name: batch[spec.name] for spec in inputs}
