from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from anabranch_graph_opt.signature import read_signature
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.repository import ModelFolder, scan_repository
from anabranch_model_store.yaml_files import read_deployment
from anabranch_publish import publish_version
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import RowLayout
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_wire.errors import (
    AnabranchError,
    Corrupt,
    InvalidInput,
    NotFound,
    TooLarge,
    Unsupported,
)
from anabranch_wire.names import ModelName
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

SCALE = (
    "scale (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1.0, 10.0}> { y = MatMul(x, w) }"
)
ACROSS = "across (float[N, 2] x) => (float[N, 2] y) { y = Softmax <axis: int = 0> (x) }"
CANCELS = """
cancels (float[N, 2] x) => (float[N, 2] y)
{ s = CumSum(x, axis) t = CumSum(x, axis) d = Sub(s, t) y = Add(x, d) }
"""
BAGS = """
bags (float[M] values, int64[B] offsets) => (float[B] y)
{
  total = ReduceSum <keepdims: int = 0> (values)
  starts = Cast <to: int = 1> (offsets)
  y = Add(starts, total)
}
"""


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


class Repository:
    """A repository with one model `m`, one version 1."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = root / "m" / "1"
        self.version.mkdir(parents=True)

    def graph(self, text: str, **constants: int) -> "Repository":
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
        for name, value in constants.items():
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(np.array(value, np.int64), name)
            )
        onnx.save(model, self.version / "model.onnx")
        return self

    def write(self, path: str, text: str) -> "Repository":
        (self.root / "m" / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / "m" / path).write_text(text)
        return self

    def warmup(self, **arrays: object) -> "Repository":
        (self.version / "warmup").mkdir(exist_ok=True)
        np.savez(self.version / "warmup" / "a.npz", **arrays)  # type: ignore[arg-type]  # of many types
        return self

    @property
    def folder(self) -> ModelFolder:
        return scan_repository(self.root).models[ModelName("m")]

    def prepare(self, runner: OrtModelRunner, available: int | None = None) -> PreparedVersion:
        deployment = read_deployment(self.folder.path)
        return prepare_version(self.folder, 1, deployment, runner, available)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def sizes(examples: tuple[Mapping[str, np.ndarray], ...]) -> list[dict[str, tuple[int, ...]]]:
    return [{name: array.shape for name, array in example.items()} for example in examples]


def refusal(repository: Repository, runner: OrtModelRunner, kind: type[AnabranchError]) -> str:
    with pytest.raises(kind) as caught:
        repository.prepare(runner)
    return caught.value.message


def test_one_file_is_enough(repository: Repository, runner: OrtModelRunner) -> None:
    prepared = repository.graph(SCALE).prepare(runner)
    assert prepared.snapshot == Snapshot("m", 1)
    assert prepared.model.path == (repository.version / "model.onnx").resolve()
    assert prepared.model.inputs == (TensorSpec("x", "FP32", (-1, 2)),)
    assert prepared.model.outputs == (TensorSpec("y", "FP32", (-1, 1)),)
    assert prepared.model.rows == RowLayout(True, 1, (0,), (0,))
    assert sizes(prepared.examples) == [{"x": (1, 2)}, {"x": (16, 2)}]
    assert (prepared.manifest, prepared.notes) == (None, ())
    assert prepared.identity.startswith("sha256:")


def test_rows_that_influence_each_other_are_found(
    repository: Repository, runner: OrtModelRunner
) -> None:
    prepared = repository.graph(ACROSS).prepare(runner)
    assert not prepared.model.rows.independent
    assert "Softmax" in prepared.model.rows.reason
    assert prepared.notes == (f"requests are neither merged nor cut: {prepared.model.rows.reason}",)


def test_the_modeller_may_vouch_for_what_is_not_proven(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(CANCELS, axis=0)
    assert not repository.prepare(runner).model.rows.independent
    repository.write("1/model.yaml", "row_independent: true")
    assert repository.prepare(runner).model.rows == RowLayout(True, 1, (0,), (0,))


def test_a_claim_that_runs_contradict_is_refused(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(ACROSS).write("1/model.yaml", "row_independent: true")
    message = refusal(repository, runner, InvalidInput)
    assert message.startswith("model.yaml: row_independent: true, but output 'y' at ")


def test_a_claim_about_a_graph_without_rows_is_refused(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph("fixed (float[3] x) => (float[3] y) { y = Exp(x) }")
    assert repository.prepare(runner).model.rows.input_axes == (None,)
    repository.write("1/model.yaml", "row_independent: true")
    assert "no input has a row axis" in refusal(repository, runner, InvalidInput)


def test_the_modeller_may_keep_rows_apart(repository: Repository, runner: OrtModelRunner) -> None:
    repository.graph(SCALE).write("1/model.yaml", "row_independent: false")
    rows = repository.prepare(runner).model.rows
    assert (rows.independent, rows.input_axes) == (False, (0,))
    assert "row_independent: false" in rows.reason


def test_bags_run_one_by_one(repository: Repository, runner: OrtModelRunner) -> None:
    repository.graph(BAGS)
    unclear = repository.prepare(runner).model.rows
    assert unclear.input_axes == (None, None)
    assert "say what it counts in model.yaml" in unclear.reason
    repository.write(
        "1/model.yaml", "inputs: {values: {axis: ids, bag: offsets}, offsets: {axis: bag}}"
    )
    declared = repository.prepare(runner).model.rows
    assert (declared.independent, declared.input_axes) == (False, (None, None))
    assert "bags" in declared.reason


def test_bags_stay_apart_even_where_the_modeller_vouches(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(BAGS).write(
        "1/model.yaml",
        "row_independent: true\ninputs: {values: {axis: ids, bag: offsets}, offsets: {axis: bag}}",
    )
    assert "bags" in repository.prepare(runner).model.rows.reason
    repository.write("1/model.yaml", "row_independent: true")
    assert "say what it counts" in refusal(repository, runner, InvalidInput)


def test_single_rows_are_padded_where_the_graph_needs_two(
    repository: Repository, runner: OrtModelRunner
) -> None:
    source = next(model for model in tree_models() if "dcnmix" in model.name)
    (repository.version / "model.onnx").write_bytes((source.folder / "model.onnx").read_bytes())
    one = source.batches()[0]["X"][:1]
    with pytest.raises(InvalidInput):
        runner.run(repository.version / "model.onnx", {"X": one})
    repository.warmup(**{"X": one, "expected.prob": source.expected()[0]["prob"][:1]})
    prepared = repository.prepare(runner)
    assert prepared.model.rows.min_rows == 2
    assert np.array_equal(prepared.examples[0]["X"], np.repeat(one, 2, axis=0))


def test_requests_that_a_version_brings_are_run_and_compared(
    repository: Repository, runner: OrtModelRunner
) -> None:
    x = np.array([[1, 2], [3, 4]], np.float32)
    right = np.array([[21], [43]], np.float32)
    repository.graph(SCALE).warmup(**{"x": x, "expected.y": right})
    assert sizes(repository.prepare(runner).examples) == [{"x": (2, 2)}]
    repository.warmup(**{"x": x, "expected.y": right + 0.01})
    message = refusal(repository, runner, InvalidInput)
    assert message.startswith("warmup/a.npz: output 'y' at [0, 0]: expected 21.01, found 21.0;")
    repository.write("1/model.yaml", "optimize: {parity: {max_abs_diff: 0.01}}")
    repository.prepare(runner)


def test_a_request_that_fails_refuses_the_version(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(
        "lookup (int64[N] ids) => (float[N, 1] y) <float[2, 1] table = {0.0, 1.0}> "
        "{ y = Gather(table, ids) }"
    ).warmup(ids=np.array([0, 5]))
    message = refusal(repository, runner, InvalidInput)
    assert message.startswith("warmup/a.npz: the model cannot compute these inputs")


def test_a_request_without_rows_or_with_rows_that_disagree(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph("two (float[N] a, float[N] b) => (float[N] y) { y = Add(a, b) }")
    none = np.zeros(0, np.float32)
    repository.warmup(**{"a": none, "b": none, "expected.y": none})
    assert repository.prepare(runner).model.rows.can_merge
    repository.warmup(a=np.zeros(2, np.float32), b=np.zeros(1, np.float32))
    assert refusal(repository, runner, InvalidInput) == (
        "warmup/a.npz: inputs disagree on the number of rows: {'a': 2, 'b': 1}"
    )


def test_nothing_is_made_up_where_that_is_not_wanted(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(SCALE).write("serving.yaml", "warmup: {generate: false}")
    prepared = repository.prepare(runner)
    assert prepared.examples == ()
    assert not prepared.model.rows.independent
    repository.warmup(x=np.ones((3, 2), np.float32))
    assert repository.prepare(runner).model.rows.independent


def test_a_graph_that_runs_on_nothing_is_refused(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(
        "never (float[N, 2] x) => (float[N, 3] y) <int64[2] s = {7, 3}> { y = Reshape(x, s) }"
    )
    message = refusal(repository, runner, InvalidInput)
    assert message.startswith("the graph computes no request that could be made up: ")
    assert "put a request" in message


def test_a_malformed_graph_is_refused_in_words(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(
        "odd (float[N] x) => (float[N] y) "
        "{ c = Constant <value_float: float = 1.0> () y = Add(x, c) }"
    )
    model = onnx.load(repository.version / "model.onnx")
    attribute = model.graph.node[0].attribute[0]
    attribute.name, attribute.type = "value", onnx.AttributeProto.UNDEFINED
    onnx.save(model, repository.version / "model.onnx")
    assert "model.onnx: malformed graph: " in refusal(repository, runner, InvalidInput)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inputs: {z: {axis: none}}", "model.yaml: inputs: the graph has no input 'z'; it has 'x'"),
        (
            "outputs: {yy: {}}",
            "outputs: the graph has no output 'yy', did you mean 'y'? it has 'y'",
        ),
        (
            "features: [{name: f, side: user, type: int64}]",
            "features[0]: the graph has no input 'f'",
        ),
        (
            "features: [{name: x, side: candidate, type: float32, shape: [2]}]\n"
            "ranking: {id: x, score: {output: p}}",
            "ranking.score: the graph has no output 'p'",
        ),
    ],
)
def test_names_in_model_yaml_have_to_be_those_of_the_graph(
    repository: Repository, runner: OrtModelRunner, text: str, message: str
) -> None:
    repository.graph(SCALE).write("1/model.yaml", text)
    assert message in refusal(repository, runner, InvalidInput)


def test_doors_that_are_not_open_yet_are_noted(
    repository: Repository, runner: OrtModelRunner
) -> None:
    text = "features: [{name: x, side: candidate, type: float32, shape: [2]}]"
    repository.graph(SCALE).write("1/model.yaml", text)
    assert repository.prepare(runner).notes == (
        "model.yaml: no door of this release uses features",
    )


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("1/model.yaml", "calibration: {y: {platt: [1, 0]}}", "model.yaml: not available"),
        ("serving.yaml", "executors: {backend: ort-cuda}", "executors.backend: ort-cuda"),
    ],
)
def test_what_this_release_would_ignore_is_refused(
    repository: Repository, runner: OrtModelRunner, path: str, text: str, message: str
) -> None:
    repository.graph(SCALE).write(path, text)
    assert message in refusal(repository, runner, Unsupported)


def test_golden_requests_may_be_left_out_knowingly(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(SCALE).write("1/golden/0000.json", "{}")
    repository.write("serving.yaml", "golden: warn")
    assert repository.prepare(runner).notes == (
        "served though its golden requests fail (golden: warn): golden/0000.json: missing key "
        "'request'",
    )
    repository.write("serving.yaml", "golden: off")
    assert repository.prepare(runner).notes == ()


def test_deltas_are_no_part_of_a_version(repository: Repository, runner: OrtModelRunner) -> None:
    repository.graph(SCALE)
    identity = repository.prepare(runner).identity
    repository.write("1/deltas/00000001/delta.json", "{}")
    assert (repository.prepare(runner).identity, repository.prepare(runner).notes) == (identity, ())


def test_a_malformed_golden_request_refuses_its_version(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(SCALE).write("1/golden/0000.json", "{}")
    assert "golden/0000.json: missing key" in refusal(repository, runner, InvalidInput)


def test_a_version_that_does_not_fit_is_refused(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.graph(SCALE)
    with pytest.raises(TooLarge, match="the machine has 10 left"):
        repository.prepare(runner, available=10)
    repository.write("serving.yaml", "memory: {max_bytes: 9}")
    assert "memory.max_bytes allows 9" in refusal(repository, runner, TooLarge)


def test_a_version_without_its_graph_says_what_it_found(
    repository: Repository, runner: OrtModelRunner
) -> None:
    repository.write("1/click.onnx", "x")
    assert (
        refusal(repository, runner, NotFound) == "the version has no model.onnx; found click.onnx"
    )
    with pytest.raises(NotFound, match="no version 2"):
        prepare_version(repository.folder, 2, read_deployment(repository.folder.path), runner)
    repository.write("1/model.onnx", "not a model")
    assert "no ONNX model" in refusal(repository, runner, InvalidInput)


def test_a_published_version_is_verified_and_named(tmp_path: Path, runner: OrtModelRunner) -> None:
    (tmp_path / "repository").mkdir()
    Repository(tmp_path / "source").graph(SCALE).write("1/model.yaml", "description: by hand")
    source = tmp_path / "source" / "m" / "1"
    published = publish_version(
        tmp_path / "repository" / "m",
        source / "model.onnx",
        version=1,
        model_yaml=source / "model.yaml",
    )
    folder = scan_repository(tmp_path / "repository").models[ModelName("m")]
    deployment = read_deployment(folder.path)
    prepared = prepare_version(folder, 1, deployment, runner)
    assert prepared.manifest is not None
    assert prepared.identity == published.identity
    assert prepared.meaning.description == "by hand"
    with (folder.versions[1].path / "model.onnx").open("ab") as file:
        file.write(b"\x00")
    with pytest.raises(Corrupt, match=r"model\.onnx: expected \d+ bytes, found \d+"):
        prepare_version(folder, 1, deployment, runner)


def test_external_weights_may_lie_beside_the_graph(
    repository: Repository, runner: OrtModelRunner
) -> None:
    weights = onnx.numpy_helper.from_array(np.array([[1], [10]], np.float32), "w")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> scale (float[N, 2] x) => (float[N, 1] y) '
        "<float[2, 1] w = {0.0, 0.0}> { y = MatMul(x, w) }"
    )
    model.graph.initializer[0].CopyFrom(weights)
    onnx.save(
        model,
        repository.version / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    x = np.array([[1, 2]], np.float32)
    repository.warmup(**{"x": x, "expected.y": np.array([[21]], np.float32)})
    assert repository.prepare(runner).model.rows.independent


@pytest.mark.parametrize("model", [*tree_models(), *corpus_models()], ids=lambda m: m.name)
def test_real_models_are_prepared_with_their_own_requests(
    repository: Repository, runner: OrtModelRunner, model: CorpusModel
) -> None:
    (repository.version / "model.onnx").write_bytes((model.folder / "model.onnx").read_bytes())
    declared = {spec.name for spec in read_signature(model.folder / "model.onnx").inputs}
    batch = {key: array for key, array in model.batches()[0].items() if key in declared}
    expected = model.expected()[0]
    repository.warmup(**batch, **{f"expected.{name}": array for name, array in expected.items()})
    prepared = repository.prepare(runner)
    rows = prepared.model.rows
    assert rows.independent == ("fixed_batch" not in model.name)
    # The corpus calls what fails with one row not independent; from two rows on these are.
    assert rows.min_rows == (2 if model.row_independent is False else 1)
    assert rows.can_merge == (model.row_independent is not None)
    assert rows.can_split == (rows.independent and "dien" not in model.name)
    assert len(prepared.examples) == 1
