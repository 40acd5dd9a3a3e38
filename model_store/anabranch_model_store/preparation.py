"""From a version folder to a version that a session group can load, or to the reason why not.

Everything that can be wrong with a version is found here, before any executor knows of it: files,
meaning, graph, rows, and the requests it brings along.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from anabranch_graph_opt.parity.sliced_originals import sliced_runner
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.cut_tables import cut_bytes
from anabranch_model_store.cut_versions import CutVersion, WholeVersion, cut_version
from anabranch_model_store.golden import golden_notes
from anabranch_model_store.graph_trials import GraphTrial
from anabranch_model_store.item_tables import with_item_table
from anabranch_model_store.lookup_plans import user_features
from anabranch_model_store.memory import check_fits
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.planned_versions import (
    NO_TABLES,
    Fits,
    is_planned,
    open_planned,
    serve_planned,
)
from anabranch_model_store.prepared_stores import (
    PreparedStore,
    StoreSettings,
    needed_bytes,
    prepared_store,
)
from anabranch_model_store.ranking_plans import check_rules, ranking_plan
from anabranch_model_store.reduced_versions import (
    ReducedVersion,
    UnreducedVersion,
    reduce_version,
)
from anabranch_model_store.repository import ModelFolder
from anabranch_model_store.score_plans import check_scores
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.store_trials import StoreTrial
from anabranch_model_store.supported import (
    check_deployment,
    check_meaning,
    idle_keys,
    unused_keys,
)
from anabranch_model_store.table_import import import_tables
from anabranch_model_store.version_contents import (
    VersionContents,
    find_onnx_file,
    graph_digest,
    graph_source,
    malformed_graphs_refused,
    read_contents,
)
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_model_store.version_tables import DEFAULT_RESERVE, VersionTables, read_tables
from anabranch_model_store.yaml_files import read_meaning
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_wire.errors import NotFound, Unavailable
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
        model: what a backend builds, and what fills its inputs from tables.
        store: rows that are looked up beside the graph; None where it does without.
        cut: what became of the lookups of its own graph; None where they were not looked for.
        reduced: what became of its whole graph where that was to compute with fewer bits; None
            where it was not, or where lookups were cut out of it.
        user_inputs: inputs and features that may be sent once per request.
        meaning: its model.yaml.
        deployment: the model's serving.yaml.
        manifest: None where the version was taken because it was still.
        identity: what deltas name their base by.
        weight_bytes: of the graphs that run and their external data.
        examples: requests that it computes, to warm executors with; none where it brings none and
            none were to be made.
        graph_examples: the same ones as the graph that runs takes them, rows looked up.
        ranking: what its ranking doors do; None where model.yaml has no ranking.
        notes: what an operator should know, in words; each is worth a log line.
    """

    snapshot: Snapshot
    model: DenseModel
    store: PreparedStore | None
    cut: CutVersion | WholeVersion | None
    reduced: ReducedVersion | UnreducedVersion | None
    user_inputs: tuple[str, ...]
    meaning: ModelMeaning
    deployment: Deployment
    manifest: Manifest | None
    identity: str
    weight_bytes: int
    examples: tuple[Mapping[str, Array], ...]
    graph_examples: tuple[Mapping[str, Array], ...]
    ranking: RankingPlan | None
    notes: tuple[str, ...]


def prepare_version(
    folder: ModelFolder,
    number: int,
    deployment: Deployment,
    runner: ModelRunner,
    available_bytes: int | None = None,
    on_phase: Callable[[PreparationPhase], None] = lambda phase: None,
    store: StoreSettings | None = None,
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
        store: how rows are prepared; None where versions with lookups cannot be.

    Raises:
        NotFound: there is no such version, or no ONNX file in it.
        Corrupt: a file is missing or not what the manifest says.
        InvalidInput: a file is malformed, contradicts another, or gives other answers than it says.
        Unsupported: it needs what this release does not have.
        OutOfRoom: it does not fit into the memory that is left.
        TooLarge: it passes a limit.
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
    on_phase("importing")
    fits: Fits = partial(
        check_fits, max_bytes=deployment.memory.max_bytes, available=available_bytes
    )
    if is_planned(files):
        planned = _planned(snapshot, files, meaning, deployment, store, fits, on_phase)
        return _proven(planned, files)
    onnx_file = find_onnx_file(files, meaning)
    tables = read_tables(files, meaning, DEFAULT_RESERVE if store is None else store.reserve)
    is_cut = _is_cut(meaning, store)
    # External weights of what is to be cut are not loaded: how much is left is not known yet.
    fits(onnx_file.path.stat().st_size if is_cut else onnx_file.bytes, needed_bytes(tables))
    with malformed_graphs_refused(onnx_file):
        contents = read_contents(onnx_file, files, meaning, tables)
    ranking = _ranking(meaning, contents, files, store)
    fits = _with_items(fits, ranking)
    fits(onnx_file.path.stat().st_size if is_cut else onnx_file.bytes, needed_bytes(tables))
    opened = _open_rows(contents, tables, files, store)
    prepared, rows = (None, None) if opened is None else opened
    on_phase("comparing")
    with malformed_graphs_refused(onnx_file):
        if is_cut:
            runner = _without_tables(contents, runner)
        trial = GraphTrial(contents, meaning, deployment, runner)
        model, examples = trial.run(rows, tables)
        if ranking is not None and examples:
            check_scores(ranking, model.outputs, partial(trial.answers, examples[0]))
        cut = None
        if is_cut and store is not None:
            source = graph_source(onnx_file, files)
            digest = graph_digest(onnx_file, files)
            cut = cut_version(
                contents, source, digest, meaning, store, model, examples, runner, fits
            )
        reduced = None
        if meaning.optimize.dense != "f32" and not isinstance(cut, CutVersion):
            if store is None or store.graphs is None:
                raise Unavailable("optimize.dense: there is no folder to keep its graph in")
            digest = graph_digest(onnx_file, files)
            reduced = reduce_version(contents, digest, meaning, store, model, examples, runner)
    if not isinstance(cut, CutVersion):
        fits(onnx_file.bytes, needed_bytes(tables))
    graph_examples = tuple(example.inputs for example in examples)
    weight_bytes = onnx_file.bytes
    if isinstance(cut, CutVersion):
        model, prepared, graph_examples = cut.model, cut.store, cut.graph_examples
        weight_bytes = cut.weight_bytes
    elif isinstance(reduced, ReducedVersion):
        model, weight_bytes = reduced.model, reduced.weight_bytes
    prepared_version = PreparedVersion(
        snapshot=snapshot,
        model=model,
        store=prepared,
        cut=cut,
        reduced=reduced,
        user_inputs=(*contents.user_inputs, *user_features(meaning)),
        meaning=meaning,
        deployment=deployment,
        manifest=files.manifest,
        identity=files.identity,
        weight_bytes=weight_bytes,
        examples=tuple(example.request for example in examples),
        graph_examples=graph_examples,
        ranking=ranking,
        notes=tuple(_notes(files, meaning, deployment, model.rows, tables, cut, reduced)),
    )
    return _proven(prepared_version, files)


def _planned(
    snapshot: Snapshot,
    files: VersionFiles,
    meaning: ModelMeaning,
    deployment: Deployment,
    store: StoreSettings | None,
    fits: Fits,
    on_phase: Callable[[PreparationPhase], None],
) -> PreparedVersion:
    """Prepare a version that was optimised ahead of time; see `prepare_version`."""
    if store is None:
        raise Unavailable("the version has a plan, but there is no folder to keep rows in")
    planned = open_planned(files, meaning, store, fits)
    ranking = _ranking(meaning, planned.contents, files, store)
    _with_items(fits, ranking)(planned.weight_bytes, cut_bytes(planned.plan.tables))
    on_phase("comparing")
    with malformed_graphs_refused(planned.contents.onnx_file):
        cut, examples = serve_planned(planned, files, meaning, deployment)
    rows = cut.model.rows
    return PreparedVersion(
        snapshot=snapshot,
        model=cut.model,
        store=cut.store,
        cut=cut,
        reduced=None,
        user_inputs=planned.contents.user_inputs,
        meaning=meaning,
        deployment=deployment,
        manifest=files.manifest,
        identity=files.identity,
        weight_bytes=cut.weight_bytes,
        examples=tuple(example.request for example in examples),
        graph_examples=cut.graph_examples,
        ranking=ranking,
        notes=tuple(_notes(files, meaning, deployment, rows, NO_TABLES, cut, None)),
    )


def _proven(version: PreparedVersion, files: VersionFiles) -> PreparedVersion:
    """Return a version after its golden requests were run, with what they showed."""
    return replace(version, notes=(*version.notes, *golden_notes(files, version)))


def _open_rows(
    contents: VersionContents,
    tables: VersionTables,
    files: VersionFiles,
    settings: StoreSettings | None,
) -> tuple[PreparedStore, StoreTrial] | None:
    """Import the tables of a version and open them for its requests; None: it has no lookups."""
    lookups = contents.lookups
    if lookups is None:
        return None
    if settings is None:
        raise Unavailable("the version has lookups, but there is no folder to keep rows in")
    path = import_tables(tables, files, settings.segments, settings.on_bytes)
    try:
        trial = StoreTrial(path, lookups)
    except OSError as error:
        raise Unavailable(f"rows cannot be opened: {error.strerror or error}") from None
    features = tuple(feature.spec for feature in lookups.features)
    return prepared_store(path, trial.segment, lookups.plan, features), trial


def _ranking(
    meaning: ModelMeaning,
    contents: VersionContents,
    files: VersionFiles,
    settings: StoreSettings | None,
) -> RankingPlan | None:
    """Compile the ranking of a version with all that it reads, as workers are told; None: none."""
    plan = ranking_plan(meaning, contents, files, None if settings is None else settings.graphs)
    plan = with_item_table(plan, meaning, files, settings)
    check_rules(plan, contents.signature.outputs)
    return plan


def _with_items(fits: Fits, ranking: RankingPlan | None) -> Fits:
    """Return what counts the item table as well, which all workers map."""
    items = 0 if ranking is None or ranking.item_table is None else ranking.item_table.bytes
    return lambda graph, tables: fits(graph, tables + items)


def _without_tables(contents: VersionContents, runner: ModelRunner) -> ModelRunner:
    """Return what runs a version's graph on few rows without loading, or mapping, its tables."""
    others = (OrtModelRunner(), OrtModelRunner())
    return sliced_runner(contents.graph, contents.onnx_file.path, runner, others)


def _is_cut(meaning: ModelMeaning, settings: StoreSettings | None) -> bool:
    """Whether lookups of a version's own graph are to be cut out."""
    can_be = settings is not None and settings.graphs is not None and not meaning.lookups
    return can_be and meaning.optimize.split != "off"


def _notes(
    files: VersionFiles,
    meaning: ModelMeaning,
    deployment: Deployment,
    rows: RowLayout,
    tables: VersionTables,
    cut: CutVersion | WholeVersion | None,
    reduced: ReducedVersion | UnreducedVersion | None,
) -> Iterator[str]:
    if cut is not None and cut.note:
        yield cut.note
    if isinstance(reduced, ReducedVersion):
        yield reduced.reduction.note
    elif reduced is not None:
        yield reduced.note
    if not rows.independent:
        yield f"requests are neither merged nor cut: {rows.reason}"
    if meaning.user_inputs == "auto":
        yield "user_inputs: auto finds none in this release: every row brings its own user"
    if tables.unused:
        shown = ", ".join(map(repr, tables.unused[:10]))
        yield f"tables that no lookup reads are left alone: {shown}"
    unused = unused_keys(meaning)
    if unused:
        yield f"model.yaml: no door of this release uses {', '.join(unused)}"
    idle = idle_keys(deployment)
    if idle:
        yield f"serving.yaml: nothing in this release acts on {', '.join(idle)}"
    if files.unlisted:
        yield f"not listed in manifest.json and left alone: {', '.join(files.unlisted[:10])}"
