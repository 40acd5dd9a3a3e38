from pathlib import Path

import pytest

from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.signature import Signature
from anabranch_model_store.graph_names import check_names, declared_axes
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec


def signature(inputs: str, outputs: str = "y") -> Signature:
    return Signature(
        tuple(TensorSpec(name, "INT64", (-1,)) for name in inputs.split()),
        tuple(TensorSpec(name, "FP32", (-1,)) for name in outputs.split()),
        {},
        17,
    )


def meaning(text: str) -> ModelMeaning:
    return read_yaml(text.encode(), ModelMeaning, "model.yaml")


def test_everything_that_model_yaml_can_name_may_be_there() -> None:
    text = (Path(__file__).parent / "documents" / "model.yaml").read_text()
    inputs = (
        "user_id hist hist_len values offsets pos dense item_id country query device locale age "
        "price affinity X emb a b"
    )
    check_names(meaning(text), signature(inputs, "ctr cvr"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inputs: {vv: {axis: none}}", "no input 'vv', did you mean 'v'? it has 'v', 'w'"),
        ("user_inputs: [u]", "user_inputs: the graph has no input 'u'"),
        (
            "lookups: [{feature: f, table: t, output: {input: e, columns: [0, 8]}}]",
            "lookups: the graph has no input 'e'",
        ),
        ("calibration: {z: {platt: [1, 0]}}", "calibration: the graph has no output 'z'"),
        (
            "features: [{name: v, side: user, type: int64, "
            "ragged: {max_length: 9, pad_to: 9, lengths_input: n}}]",
            "features[0]: the graph has no input 'n'",
        ),
    ],
)
def test_a_name_that_is_not_there_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_names(meaning(text), signature("v w"))
    assert caught.value.message.startswith("model.yaml: ")
    assert message in caught.value.message


def test_a_long_list_of_names_is_cut() -> None:
    with pytest.raises(InvalidInput, match=r"'i19' \.\.\.$"):
        check_names(
            meaning("inputs: {x: {axis: none}}"), signature(" ".join(f"i{i}" for i in range(30)))
        )


def test_what_axis_0_counts_is_handed_to_the_analysis() -> None:
    text = "inputs: {v: {axis: ids, bag: w}, w: {axis: bag}, x: {axis: none}}"
    assert declared_axes(meaning(text)) == {
        "v": InputAxis("ids", "w"),
        "w": InputAxis("bag"),
        "x": InputAxis("none"),
    }
