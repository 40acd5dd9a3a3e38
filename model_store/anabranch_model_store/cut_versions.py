"""Lookups of a version's own graph: cut out, kept in the cache, and compared before they serve.

What cannot be cut is served whole, and so is what answers differently, unless model.yaml wants such
a version refused. Either is said in the notes of the version, never kept quiet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.graph_files import write_graph
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import LookupVerdict, Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.cases import ParityCase, parity_cases
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport, compare
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_graph_opt.signature import read_signature
from anabranch_model_store.cut_tables import cut_tables, import_cut_tables
from anabranch_model_store.cut_trials import open_cut_trial
from anabranch_model_store.examples import Example
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.prepared_stores import PreparedStore, StoreSettings, prepared_store
from anabranch_model_store.version_contents import VersionContents
from anabranch_runtime.cut_models import cut_model
from anabranch_runtime.models import DenseModel, part_model
from anabranch_runtime.store import Segment
from anabranch_wire.errors import InvalidInput, Unavailable
from anabranch_wire.plan import Graphs, Plan, Source

__all__ = ["CutVersion", "WholeVersion", "cut_version"]

_FORMAT: Final = "cut 1"
_DENSE: Final = "dense.onnx"
_PRELUDE: Final = "prelude.onnx"


@dataclass(frozen=True, slots=True, eq=False)
class WholeVersion:
    """A version whose graph runs as it was published.

    Attributes:
        verdicts: lookups that it has.
        note: why none was cut, where that is worth a line; else "".
    """

    verdicts: tuple[LookupVerdict, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class CutVersion:
    """A version whose lookups run beside its graph.

    Attributes:
        model: the original, with what runs in its place.
        store: rows of the tables that were cut.
        graph_examples: requests as the dense graph takes them.
        verdicts: lookups of the original.
        parity: what the comparison gave.
        weight_bytes: of the graphs that are left.
    """

    model: DenseModel
    store: PreparedStore
    graph_examples: tuple[Mapping[str, Array], ...]
    verdicts: tuple[LookupVerdict, ...]
    parity: ParityReport
    weight_bytes: int


def cut_version(
    contents: VersionContents,
    source: Source,
    meaning: ModelMeaning,
    settings: StoreSettings,
    model: DenseModel,
    examples: Sequence[Example],
    runner: ModelRunner,
) -> CutVersion | WholeVersion:
    """Cut the lookups out of a version that was found good.

    Args:
        contents: of its files.
        source: of its graph.
        meaning: its model.yaml.
        settings: where rows and graphs are kept.
        model: the original.
        examples: requests that it computes.
        runner: runs the original.

    Raises:
        InvalidInput: it answers differently, and model.yaml wants such a version refused.
        Unavailable: the cache cannot be written, or there is no memory.
    """
    optimized = optimize(contents.graph, _options(contents, meaning))
    if not optimized.lookups:
        return WholeVersion(optimized.verdicts)
    try:
        return _made(contents, source, meaning, settings, model, examples, runner, optimized)
    except InvalidInput as error:
        if meaning.optimize.on_difference == "refuse":
            raise InvalidInput(f"optimize.on_difference: refuse: {error.message}") from None
        note = f"its lookups stay in the graph: {error.message}"
        return WholeVersion(_all_left(optimized.verdicts, error.message), note)


def _options(contents: VersionContents, meaning: ModelMeaning) -> OptimizeOptions:
    return OptimizeOptions(
        min_table_bytes=meaning.optimize.min_table_bytes,
        axes=contents.axes,
        rows={name: table.rows for name, table in meaning.tables.items() if table.rows != "f32"},
    )


def _made(
    contents: VersionContents,
    source: Source,
    meaning: ModelMeaning,
    settings: StoreSettings,
    model: DenseModel,
    examples: Sequence[Example],
    runner: ModelRunner,
    optimized: Optimized,
) -> CutVersion:
    assert settings.graphs is not None
    tables = cut_tables(optimized.tables, meaning.tables, settings.reserve)
    plan = Plan(
        format=1,
        source=source,
        structure_hash=optimized.structure_hash,
        graphs=Graphs(dense=_DENSE, prelude=None if optimized.prelude is None else _PRELUDE),
        tables=tables,
        buffers=optimized.buffers,
        lookups=optimized.lookups,
        pass_through=optimized.pass_through,
        weights=dict(optimized.weights),
    )
    digest = source.sha256
    key = "\n".join((_FORMAT, digest, optimized.structure_hash))
    folder = settings.graphs.get(key, lambda place: _write_graphs(optimized, place))
    segment = import_cut_tables(
        optimized.tables, tables, digest, settings.segments, settings.on_bytes
    )
    cut = cut_model(
        plan,
        model.inputs,
        _part(folder / _DENSE),
        None if optimized.prelude is None else _part(folder / _PRELUDE),
    )
    made = replace(model, cut=cut)
    try:
        with open_cut_trial(made, segment) as trial:
            report = compare(
                lambda inputs: runner.run(model.path, inputs),
                trial.run,
                _cases(contents, optimized, model, examples),
                _budget(meaning),
            )
            if not report.ok:
                raise InvalidInput(
                    f"without its lookups it answers differently: {report.difference}"
                )
            graph_examples = tuple(trial.dense_inputs(each.inputs) for each in examples)
    except OSError as error:
        raise Unavailable(f"rows cannot be opened: {error.strerror or error}") from None
    store = prepared_store(segment, Segment.open(segment), plan, ())
    return CutVersion(
        model=made,
        store=store,
        graph_examples=graph_examples,
        verdicts=optimized.verdicts,
        parity=report,
        weight_bytes=sum(path.stat().st_size for path in folder.iterdir()),
    )


def _cases(
    contents: VersionContents,
    optimized: Optimized,
    model: DenseModel,
    examples: Sequence[Example],
) -> list[ParityCase]:
    made_up = ExampleInputs(contents.signature, contents.graph, contents.axes)
    given = [ParityCase(each.name, each.inputs) for each in examples]
    return list(parity_cases(optimized, made_up, given, model.rows.min_rows))


def _write_graphs(optimized: Optimized, place: Path) -> None:
    write_graph(optimized.dense, place / _DENSE)
    if optimized.prelude is not None:
        write_graph(optimized.prelude, place / _PRELUDE)


def _part(path: Path) -> DenseModel:
    signature = read_signature(path)
    return part_model(path, signature.inputs, signature.outputs)


def _budget(meaning: ModelMeaning) -> ParityBudget:
    budget = meaning.optimize.budget
    return ParityBudget(budget.max_abs_diff, budget.min_rank_agreement)


def _all_left(verdicts: Sequence[LookupVerdict], reason: str) -> tuple[LookupVerdict, ...]:
    return tuple(replace(each, reason=each.reason or reason) for each in verdicts)
