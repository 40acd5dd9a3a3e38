"""Versions that were optimised ahead of time: plan.json, graphs and segments in place of a graph.

What the original was is known of them alone: its inputs from the plan, how rows flow and which ids
there are from the graphs, put together again, and from running them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import structs

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.optimized import LookupVerdict
from anabranch_graph_opt.parity.cases import ParityCase, joined, one_user_requests
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport, compare
from anabranch_graph_opt.reassembly import reassembled
from anabranch_graph_opt.reporting import report as reports
from anabranch_graph_opt.row_axes import resolve_row_axes
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.running import Array
from anabranch_graph_opt.signature import read_signature
from anabranch_model_store.containment import read_inside
from anabranch_model_store.cut_tables import cut_bytes
from anabranch_model_store.cut_trials import CutTrial, open_cut_trial
from anabranch_model_store.cut_versions import CutVersion
from anabranch_model_store.examples import Example
from anabranch_model_store.graph_names import check_names, declared_axes
from anabranch_model_store.graph_trials import GraphTrial
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.onnx_files import OnnxFile, check_onnx_file
from anabranch_model_store.prepared_stores import StoreSettings, prepared_store
from anabranch_model_store.segment_cache import link_or_copy
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.table_import import adopt_segment
from anabranch_model_store.trial_runners import TrialRunner
from anabranch_model_store.user_inputs import user_inputs
from anabranch_model_store.version_contents import VersionContents, malformed_graphs_refused
from anabranch_model_store.version_files import VersionFiles
from anabranch_model_store.version_tables import VersionTables, room_for
from anabranch_model_store.warmup_files import read_samples
from anabranch_runtime.cut_models import cut_model
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_runtime.store import Segment
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable, Unsupported
from anabranch_wire.plan import FILE_NAME, MAX_ROWS, Plan, decode

__all__ = [
    "NO_TABLES",
    "Fits",
    "PlannedVersion",
    "is_planned",
    "open_planned",
    "read_plan",
    "serve_planned",
]

_FORMAT: Final = "planned 1"
_MAX_BYTES: Final = 64 * 1024 * 1024
NO_TABLES: Final = VersionTables((), {}, (), None)
"""Of a version whose plan says all about its tables."""

Fits = Callable[[int, int], None]
"""Given bytes of graphs and of tables; raises where they do not fit into memory."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedVersion:
    """A version with a plan, its rows and graphs where they can be run.

    Attributes:
        plan: with room for every table.
        contents: what its files say of the original, its graph put together again.
        model: what runs; its rows are not proven independent yet.
        segment: with the rows.
        weight_bytes: of the graphs.
    """

    plan: Plan
    contents: VersionContents
    model: DenseModel
    segment: Path
    weight_bytes: int

    @contextmanager
    def trial(self) -> Iterator[CutTrial]:
        """Run it as it is served.

        Raises:
            AnabranchError: a graph cannot be built, or the segment does not fit.
        """
        try:
            with open_cut_trial(self.model, self.segment) as trial:
                yield trial
        except OSError as error:
            raise Unavailable(f"rows cannot be opened: {error.strerror or error}") from None


def is_planned(files: VersionFiles) -> bool:
    """Whether a version was optimised ahead of time."""
    return FILE_NAME in files


def read_plan(files: VersionFiles, reserve: float) -> Plan:
    """Return the plan of a version, with room for every table.

    Args:
        files: of the version.
        reserve: share of a table's rows that deltas may change at a time, where it does not say.

    Raises:
        InvalidInput: it is malformed.
        Unsupported: it is newer, says nothing of inputs, or its rows lie in several files.
    """
    plan = decode(read_inside(files.folder, FILE_NAME, _MAX_BYTES))
    if not plan.inputs:
        raise Unsupported(f"{FILE_NAME} does not say what the inputs are: optimise the model again")
    segments = {table.file for table in plan.tables}
    if len(segments) != 1:
        raise Unsupported(
            f"{FILE_NAME}: expected one segment for all tables, found {len(segments)}"
        )
    for file in (*segments, *filter(None, structs.astuple(plan.graphs))):
        if file not in files:
            raise NotFound(f"{FILE_NAME} names {file}, which is no file of the version")
    tables = tuple(
        table
        if table.capacity is not None
        else structs.replace(table, capacity=room_for(table.rows, reserve, MAX_ROWS))
        for table in plan.tables
    )
    return structs.replace(plan, tables=tables)


def open_planned(
    files: VersionFiles,
    meaning: ModelMeaning,
    settings: StoreSettings,
    fits: Fits = lambda graphs, tables: None,
) -> PlannedVersion:
    """Read a plan, its graphs and rows, and tie them together.

    Args:
        files: of the version.
        meaning: its model.yaml.
        settings: where rows and graphs are kept.
        fits: see `Fits`.

    Raises:
        InvalidInput: files are malformed or contradict each other.
        Unsupported: it needs what this release does not have.
        Corrupt: the segment is damaged.
        NotFound: a file is missing.
        TooLarge: as `fits`.
        Unavailable: the cache cannot be written.
    """
    if meaning.lookups:
        raise Unsupported(f"model.yaml: lookups of a version with {FILE_NAME}")
    if settings.graphs is None:
        raise Unavailable(f"the version has {FILE_NAME}, but there is no folder to keep graphs in")
    plan = read_plan(files, settings.reserve)
    custom = "custom_ops" in meaning.optimize.allow
    graphs = {
        name: check_onnx_file(files, name, allow_custom_ops=custom)
        for name in (plan.graphs.dense, plan.graphs.prelude, plan.graphs.user)
        if name is not None
    }
    weight_bytes = sum(file.bytes for file in graphs.values())
    fits(weight_bytes, cut_bytes(plan.tables))
    dense = graphs[plan.graphs.dense]
    with malformed_graphs_refused(dense):
        contents = _contents(files, meaning, plan, graphs)
    key = f"{_FORMAT}\n{files.identity}"
    folder = settings.graphs.get(key, lambda place: _gather(graphs, place))
    segment = adopt_segment(plan.tables[0].file, files, settings.segments, settings.on_bytes)
    _check_tables(plan, segment)
    model = _model(plan, contents, {name: folder / file.path.name for name, file in graphs.items()})
    return PlannedVersion(plan, contents, model, segment, weight_bytes)


def serve_planned(
    planned: PlannedVersion, files: VersionFiles, meaning: ModelMeaning, deployment: Deployment
) -> tuple[CutVersion, tuple[Example, ...]]:
    """Run a version until it is known how its rows flow, and which requests it computes.

    Args:
        planned: the version.
        files: of it.
        meaning: its model.yaml.
        deployment: the model's serving.yaml.

    Raises:
        InvalidInput: a request does not fit, fails or has other answers than it says.
        AnabranchError: a graph cannot be built, or there is no memory.
    """
    with planned.trial() as trial:
        runner = TrialRunner(trial)
        found, examples = GraphTrial(planned.contents, meaning, deployment, runner).run(
            None, NO_TABLES
        )
        model = replace(found, path=planned.model.path, cut=planned.model.cut)
        _check_users(planned, model, trial, meaning)
        graph_examples = tuple(trial.dense_inputs(each.inputs) for each in examples)
    verdicts, parity = _reported(files, planned.plan)
    segment = Segment.open(planned.segment)
    version = CutVersion(
        model=model,
        store=prepared_store(planned.segment, segment, planned.plan, ()),
        graph_examples=graph_examples,
        verdicts=verdicts,
        parity=parity,
        weight_bytes=planned.weight_bytes,
        seconds=0.0,
    )
    return version, examples


def _contents(
    files: VersionFiles, meaning: ModelMeaning, plan: Plan, graphs: Mapping[str, OnnxFile]
) -> VersionContents:
    """Return what the files say, as if the original were among them."""
    parts = plan.graphs
    graph = reassembled(
        plan,
        open_model(graphs[parts.dense].path),
        None if parts.prelude is None else open_model(graphs[parts.prelude].path),
        None if parts.user is None else open_model(graphs[parts.user].path),
    )
    signature = read_signature(graph)
    check_names(meaning, signature)
    axes = declared_axes(meaning)
    row_axes = resolve_row_axes(signature, axes)
    return VersionContents(
        onnx_file=graphs[parts.dense],
        graph=graph,
        signature=signature,
        axes=axes,
        row_axes=row_axes,
        user_inputs=user_inputs(meaning, row_axes),
        lookups=None,
        samples=read_samples(files, signature.inputs, signature.outputs),
    )


def _model(plan: Plan, contents: VersionContents, paths: Mapping[str, Path]) -> DenseModel:
    """Return what runs, with the row axes of its inputs, which lookups depend on."""
    signature = contents.signature
    parts = {name: _part(path) for name, path in paths.items()}
    cut = cut_model(
        plan,
        signature.inputs,
        parts[plan.graphs.dense],
        None if plan.graphs.prelude is None else parts[plan.graphs.prelude],
        None if plan.graphs.user is None else parts[plan.graphs.user],
        plan.user_inputs,
    )
    proof = prove_rows(contents.graph, contents.axes)
    rows = RowLayout(
        independent=False,
        min_rows=1,
        input_axes=tuple(proof.input_axes[spec.name] for spec in signature.inputs),
        output_axes=(None,) * len(signature.outputs),
        reason="not tried yet",
        splittable=False,
    )
    path = paths[plan.graphs.dense]
    return DenseModel(path, signature.inputs, signature.outputs, rows, cut=cut)


def _part(path: Path) -> DenseModel:
    signature = read_signature(path)
    return part_model(path, signature.inputs, signature.outputs)


def _gather(graphs: Mapping[str, OnnxFile], place: Path) -> None:
    """Copy the graphs of a version, which may be in folders of their own, into one."""
    for file in graphs.values():
        for path in (file.path, *file.external):
            link_or_copy(path, place / path.name)


def _check_tables(plan: Plan, segment: Path) -> None:
    """Check that the segment holds the tables of the plan, as the plan says."""
    found = {table.name: table for table in Segment.open(segment).tables}
    for table in plan.tables:
        one = found.get(table.name)
        if one is None:
            raise InvalidInput(f"{table.file} has no table {table.name!r}, which {FILE_NAME} reads")
        shape = (one.rows, one.dim, one.row_type, one.keys)
        if shape != (table.rows, table.dim, table.dtype, table.keys):
            raise InvalidInput(f"{table.file}: table {table.name!r} is another than in {FILE_NAME}")


def _check_users(
    planned: PlannedVersion, model: DenseModel, trial: CutTrial, meaning: ModelMeaning
) -> None:
    """Check that several users in one batch get what each gets alone."""
    users, contents = planned.plan.user_inputs, planned.contents
    if not users or not model.rows.can_merge:
        return
    source = ExampleInputs(contents.signature, contents.graph, contents.axes)
    parts = [
        part
        for part in one_user_requests(source, users)
        if len(part[users[0]]) >= model.rows.min_rows  # fewer are padded before they run
    ]
    case = ParityCase("requests of several users in one batch", joined(parts))

    def alone(_: Mapping[str, Array]) -> dict[str, Array]:
        answers = [trial.run(part) for part in parts]
        return {name: np.concatenate([one[name] for one in answers]) for name in answers[0]}

    budget = meaning.optimize.budget
    limits = ParityBudget(budget.max_abs_diff, budget.min_rank_agreement)
    report = compare(alone, lambda _: trial.run_together(parts), [case], limits)
    if not report.ok:
        raise InvalidInput(f"users influence each other: {report.difference}")


def _reported(files: VersionFiles, plan: Plan) -> tuple[tuple[LookupVerdict, ...], ParityReport]:
    """Return what the report of a version says; without one, what the plan implies."""
    if reports.FILE_NAME not in files:
        verdicts = tuple(LookupVerdict(t.name, t.name, t.rows, t.dim, "", "") for t in plan.tables)
        return verdicts, ParityReport(0, 0.0, 1.0, 0, "")
    report = reports.decode(read_inside(files.folder, reports.FILE_NAME, _MAX_BYTES))
    parity = report.parity
    return (
        tuple(
            LookupVerdict(one.node, one.table, one.rows, one.dim, one.ids, one.reason)
            for one in report.lookups
        ),
        ParityReport(parity.cases, parity.max_abs_diff, parity.rank_agreement, parity.refused, ""),
    )
