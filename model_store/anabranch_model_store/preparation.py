"""From a version folder to a version that a session group can load, or to the reason why not.

Everything that can be wrong with a version is found here, before any executor knows of it: files,
meaning, graph, rows, and the requests it brings along.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.memory import check_fits
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.repository import ModelFolder
from anabranch_model_store.row_layouts import RowQuestion, row_layout
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.supported import (
    check_contents,
    check_deployment,
    check_meaning,
    has_deltas,
    idle_keys,
    unused_keys,
)
from anabranch_model_store.version_contents import (
    VersionContents,
    find_onnx_file,
    malformed_graphs_refused,
    read_contents,
)
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_model_store.warmup_runs import made_up_examples, proven_examples
from anabranch_model_store.yaml_files import read_meaning
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_wire.errors import NotFound
from anabranch_wire.manifest import Manifest
from anabranch_wire.snapshots import Snapshot

__all__ = ["PreparationPhase", "PreparedVersion", "prepare_version"]

PreparationPhase = Literal["verifying", "importing", "comparing"]
"""Reading every byte; reading the graph; running it."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedVersion:
    """A version that was found good.

    Attributes:
        snapshot: model and version.
        model: what a backend builds.
        user_inputs: inputs that may be sent once per request.
        meaning: its model.yaml.
        deployment: the model's serving.yaml.
        manifest: None where the version was taken because it was still.
        identity: what deltas name their base by.
        weight_bytes: of the graph and its external data.
        examples: requests that it computes, to warm executors with; none where it brings none and
            none were to be made.
        notes: what an operator should know, in words; each is worth a log line.
    """

    snapshot: Snapshot
    model: DenseModel
    user_inputs: tuple[str, ...]
    meaning: ModelMeaning
    deployment: Deployment
    manifest: Manifest | None
    identity: str
    weight_bytes: int
    examples: tuple[Mapping[str, Array], ...]
    notes: tuple[str, ...]


def prepare_version(
    folder: ModelFolder,
    number: int,
    deployment: Deployment,
    runner: ModelRunner,
    available_bytes: int | None = None,
    on_phase: Callable[[PreparationPhase], None] = lambda phase: None,
) -> PreparedVersion:
    """Verify a version of a model and find out all that is needed to serve it.

    Reads every file of the version once and runs the graph some dozens of times on few rows.

    Args:
        folder: of the model.
        number: of the version.
        deployment: the model's serving.yaml.
        runner: runs the graph for checks; used by this thread alone meanwhile.
        available_bytes: memory that the version may take; None where that is not known.
        on_phase: told what begins; on this thread.

    Raises:
        NotFound: there is no such version, or no ONNX file in it.
        Corrupt: a file is missing or not what the manifest says.
        InvalidInput: a file is malformed, contradicts another, or gives other answers than it says.
        Unsupported: it needs what this release does not have.
        TooLarge: it passes a limit, or does not fit into memory.
        Conflict, Unavailable: files changed while they were read, or cannot be read.
    """
    version = folder.versions.get(number)
    if version is None:
        raise NotFound(f"model {folder.name!r} has no version {number} in the repository")
    snapshot = Snapshot(folder.name, number)
    on_phase("verifying")
    files = verify_version(version.path, snapshot)
    meaning = read_meaning(files, folder.path)
    check_meaning(meaning)
    check_deployment(deployment)
    check_contents(files, deployment)
    on_phase("importing")
    onnx_file = find_onnx_file(files, meaning)
    check_fits(onnx_file.bytes, deployment.memory.max_bytes, available_bytes)
    with malformed_graphs_refused(onnx_file):
        contents = read_contents(onnx_file, files, meaning)
        on_phase("comparing")
        model, examples = _model(contents, meaning, deployment, runner)
    return PreparedVersion(
        snapshot=snapshot,
        model=model,
        user_inputs=contents.user_inputs,
        meaning=meaning,
        deployment=deployment,
        manifest=files.manifest,
        identity=files.identity,
        weight_bytes=onnx_file.bytes,
        examples=examples,
        notes=tuple(_notes(files, meaning, deployment, model.rows)),
    )


def _model(
    contents: VersionContents, meaning: ModelMeaning, deployment: Deployment, runner: ModelRunner
) -> tuple[DenseModel, tuple[Mapping[str, Array], ...]]:
    """Return what a backend builds, and requests that it was seen to compute."""
    path, graph, signature = contents.onnx_file.path, contents.graph, contents.signature
    samples, axes = contents.samples, contents.axes
    source = ExampleInputs(signature, graph, axes) if deployment.warmup.generate else None
    question = RowQuestion(
        path, graph, signature, axes, source, [sample.inputs for sample in samples]
    )
    rows = row_layout(question, meaning.row_independent, runner)
    model = DenseModel(path, signature.inputs, signature.outputs, rows)
    if samples:
        budget = meaning.optimize.budget.max_abs_diff
        return model, proven_examples(samples, model, budget, runner)
    return model, () if source is None else made_up_examples(source, model, runner)


def _notes(
    files: VersionFiles, meaning: ModelMeaning, deployment: Deployment, rows: RowLayout
) -> Iterator[str]:
    if not rows.independent:
        yield f"requests are neither merged nor cut: {rows.reason}"
    if meaning.user_inputs == "auto":
        yield "user_inputs: auto finds none in this release: every row brings its own user"
    unused = unused_keys(meaning)
    if unused:
        yield f"model.yaml: no door of this release uses {', '.join(unused)}"
    idle = idle_keys(deployment)
    if idle:
        yield f"serving.yaml: nothing in this release acts on {', '.join(idle)}"
    if files.unlisted:
        yield f"not listed in manifest.json and left alone: {', '.join(files.unlisted[:10])}"
    if deployment.golden == "warn" and files.below("golden", ".json"):
        yield "golden requests are not run in this release"
    if deployment.deltas.apply == "manual" and has_deltas(files):
        yield "deltas are not applied in this release"
