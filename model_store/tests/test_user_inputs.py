from pathlib import Path

import numpy as np
import onnx
import pytest

from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.serving_yaml import Deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import ModelName

MATCH = """
match (float[N, 2] user, float[N, 2] item) => (float[N] y)
<int64[1] last = {1}>
{ both = Mul(user, item) y = ReduceSum <keepdims: int = 0> (both, last) }
"""
ONE_USER = MATCH.replace("float[N, 2] user", "float[1, 2] user")
OTHER_NAME = MATCH.replace("float[N, 2] user", "float[U, 2] user")
ACROSS = "across (float[N, 2] user) => (float[N, 2] y) { y = Softmax <axis: int = 0> (user) }"


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


def prepare(
    root: Path, runner: OrtModelRunner, graph: str, meaning: str, **warmup: object
) -> PreparedVersion:
    version = root / "m" / "1"
    (version / "warmup").mkdir(parents=True)
    onnx.save(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}'),
        version / "model.onnx",
    )
    (version / "model.yaml").write_text(meaning)
    if warmup:
        np.savez(version / "warmup" / "a.npz", **warmup)  # type: ignore[arg-type]  # of many types
    folder = scan_repository(root).models[ModelName("m")]
    return prepare_version(folder, 1, Deployment(), runner)


def test_user_inputs_are_those_that_model_yaml_names(
    tmp_path: Path, runner: OrtModelRunner
) -> None:
    prepared = prepare(tmp_path, runner, MATCH, "user_inputs: [user]")

    assert prepared.user_inputs == ("user",)
    assert prepared.model.rows.independent
    assert prepared.notes == ()


def test_dependent_rows_may_have_user_inputs(tmp_path: Path, runner: OrtModelRunner) -> None:
    prepared = prepare(tmp_path, runner, ACROSS, "user_inputs: [user]")

    assert prepared.user_inputs == ("user",)
    assert not prepared.model.rows.independent


@pytest.mark.parametrize("word", ["none", "auto"])
def test_without_names_there_are_none(tmp_path: Path, runner: OrtModelRunner, word: str) -> None:
    prepared = prepare(tmp_path, runner, MATCH, f"user_inputs: {word}")

    assert prepared.user_inputs == ()
    assert len(prepared.notes) == (word == "auto")


@pytest.mark.parametrize(
    ("graph", "more", "said"),
    [
        (ONE_USER, "", "axis 0 of input 'user' does not count rows.*leave it out"),
        (MATCH, "inputs: {user: {axis: none}}", "axis 0 of input 'user' does not count rows"),
        (OTHER_NAME, "", r"axis 0 of input .* say what it counts"),
    ],
)
def test_axis_0_of_a_user_input_counts_rows(
    tmp_path: Path, runner: OrtModelRunner, graph: str, more: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=f"model.yaml: user_inputs: {said}"):
        prepare(tmp_path, runner, graph, f"user_inputs: [user]\n{more}")


def test_an_axis_of_another_name_counts_rows_where_model_yaml_says_so(
    tmp_path: Path, runner: OrtModelRunner
) -> None:
    meaning = "user_inputs: [user]\ninputs: {user: {axis: rows}}"

    assert prepare(tmp_path, runner, OTHER_NAME, meaning).user_inputs == ("user",)


def test_warmup_requests_may_hold_one_user(tmp_path: Path, runner: OrtModelRunner) -> None:
    user = np.array([[1, 10]], np.float32)
    item = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    answer = {"expected.y": np.array([21, 43, 65], np.float32)}

    prepared = prepare(
        tmp_path, runner, MATCH, "user_inputs: [user]", user=user, item=item, **answer
    )

    (example,) = prepared.examples
    np.testing.assert_array_equal(example["user"], np.repeat(user, 3, axis=0))
    assert prepared.model.rows.independent


def test_warmup_requests_hold_one_user_or_one_for_each_row(
    tmp_path: Path, runner: OrtModelRunner
) -> None:
    user, item = np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32)

    with pytest.raises(InvalidInput, match=r"warmup/a.npz: .*'user' has 2, 'item' has 3"):
        prepare(tmp_path, runner, MATCH, "user_inputs: [user]", user=user, item=item)
