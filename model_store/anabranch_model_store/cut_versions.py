"""Lookups of a version's own graph: cut out, kept in the cache, and compared before they serve.

What cannot be cut is served whole, and so is what answers differently, unless model.yaml wants such
a version refused. Either is said in the notes of the version, never kept quiet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import LookupVerdict, Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.cases import ParityCase, of_one_user
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport
from anabranch_graph_opt.precision.activation_ranges import Observed
from anabranch_graph_opt.precision.dense_precision import Int8Precision
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.calibration import (
    Calibration,
    Reduction,
    calibrate,
    large_batch,
    reduced_rows,
    shown_agreement,
)
from anabranch_model_store.cut_comparison import compare_cut
from anabranch_model_store.cut_parts import Fits, PartFiles, opened_parts
from anabranch_model_store.cut_tables import check_cut_tables
from anabranch_model_store.cut_trials import CutTrial
from anabranch_model_store.examples import Example
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.optimiser_faults import NOT_FAULTS, fault_note
from anabranch_model_store.prepared_stores import PreparedStore, StoreSettings, prepared_store
from anabranch_model_store.recorded_inputs import inputs_like_recorded
from anabranch_model_store.row_layouts import RowQuestion, cut_layout
from anabranch_model_store.trial_runners import TrialRunner
from anabranch_model_store.version_contents import VersionContents
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.store import Segment
from anabranch_wire.errors import InvalidInput
from anabranch_wire.plan import Source

__all__ = ["CutVersion", "WholeVersion", "cut_version"]

_TIMED_ROWS: Final = 1000
"""Candidates of the request that both forms are timed with: as many as a ranking asks for."""
_SLOWER: Final = 1.1
"""How much slower fewer bits may seem, by times that are never the same twice."""
_SEED: Final = 7


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
        seconds: that a batch of one user and many candidates takes.
        layers: that compute with fewer bits.
        note: what a modeller should know of its precision; "" for nothing.
        remarks: what else a modeller should know of its graphs.
    """

    model: DenseModel
    store: PreparedStore
    graph_examples: tuple[Mapping[str, Array], ...]
    verdicts: tuple[LookupVerdict, ...]
    parity: ParityReport
    weight_bytes: int
    seconds: float
    layers: int = 0
    note: str = ""
    remarks: tuple[str, ...] = ()


def cut_version(
    contents: VersionContents,
    source: Source,
    digest: str,
    meaning: ModelMeaning,
    settings: StoreSettings,
    model: DenseModel,
    examples: Sequence[Example],
    runner: ModelRunner,
    fits: Fits = lambda graph, tables: None,
) -> CutVersion | WholeVersion:
    """Cut the lookups out of a version that was found good.

    What the optimiser trips over leaves the version whole, with a note and a line in the log.

    Args:
        contents: of its files.
        source: of its graph.
        digest: of its graph, external weights among it.
        meaning: its model.yaml.
        settings: where rows and graphs are kept.
        model: the original.
        examples: requests that it computes.
        runner: runs the original.
        fits: raises where graphs and tables of so many bytes do not fit into memory.

    Raises:
        TooLarge: as `fits`.
        Unsupported: model.yaml wants rows with fewer bits of a table that stays in the graph.
        InvalidInput: it answers differently, and model.yaml wants such a version refused.
        Unavailable: the cache cannot be written, or there is no memory.
    """
    options = _options(contents, meaning)
    try:
        optimized = optimize(contents.graph, options, None, runner)
    except Exception as error:  # whatever it is, the version was found good as it is
        return WholeVersion((), fault_note(error))
    check_cut_tables(optimized, meaning.tables)
    if not optimized.lookups:
        return WholeVersion(optimized.verdicts)
    if not model.rows.independent:
        given = [each.inputs for each in examples]
        layout = _layout_without_lookups(
            contents, meaning, model, given, options, optimized, runner
        )
        model = replace(model, rows=layout)
    files = PartFiles(contents.signature, source, digest, meaning.tables, settings, model, fits)
    making = _Making(contents, meaning, model, tuple(examples), runner, files)
    try:
        if meaning.optimize.dense == "f32":
            return making.shown(making.fastest(options, optimized), None)
        return making.reduced(options, optimized)
    except InvalidInput as error:
        if meaning.optimize.on_difference == "refuse":
            raise InvalidInput(f"optimize.on_difference: refuse: {error.message}") from None
        note = f"its lookups stay in the graph: {error.message}"
        return WholeVersion(_all_left(optimized.verdicts, error.message), note)
    except NOT_FAULTS:
        raise
    except Exception as error:
        note = fault_note(error)
        return WholeVersion(_all_left(optimized.verdicts, note), note)


def _layout_without_lookups(
    contents: VersionContents,
    meaning: ModelMeaning,
    model: DenseModel,
    given: Sequence[Mapping[str, Array]],
    options: OptimizeOptions,
    optimized: Optimized,
    runner: ModelRunner,
) -> RowLayout:
    """Return how rows flow, where what is left without lookups tells more than the whole graph."""
    axes, graph, signature = contents.axes, contents.graph, contents.signature
    by_row = optimized
    if optimized.user is not None:
        by_row = optimize(graph, replace(options, user_once=False), None, runner)
    made_up = ExampleInputs(signature, graph, axes)
    question = RowQuestion(model.path, graph, signature, axes, made_up, given)
    return cut_layout(question, model.rows, meaning.row_independent, by_row, runner)


def _options(contents: VersionContents, meaning: ModelMeaning) -> OptimizeOptions:
    return OptimizeOptions(
        min_table_bytes=meaning.optimize.min_table_bytes,
        axes=contents.axes,
        user_inputs=contents.user_inputs,
        user_once=meaning.optimize.user_once == "auto",
        rows={name: table.rows for name, table in meaning.tables.items() if table.rows != "f32"},
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Making:
    """Makes an optimised version into one that can be served; see `cut_version`."""

    contents: VersionContents
    meaning: ModelMeaning
    model: DenseModel
    examples: tuple[Example, ...]
    runner: ModelRunner
    files: PartFiles

    def fastest(
        self,
        options: OptimizeOptions,
        optimized: Optimized,
        precision: Int8Precision | None = None,
    ) -> CutVersion:
        """Make what is optimised, and, where something runs once per user, what does not as well.

        Raises:
            InvalidInput, Unavailable, TooLarge: as `_make`.
        """
        made = self._make(optimized, precision)
        if optimized.user is None:
            return made
        by_row = replace(options, user_once=False)
        other = self._make(optimize(self.contents.graph, by_row, precision, self.runner), precision)
        return made if made.seconds <= other.seconds else other

    def reduced(self, options: OptimizeOptions, optimized: Optimized) -> CutVersion:
        """Make it with fewer bits in its layers, or without where that is no gain or differs.

        Args:
            options: of full precision.
            optimized: by those.

        Raises:
            InvalidInput, Unavailable, TooLarge: as `_make`.
        """
        contents, meaning = self.contents, self.meaning
        try:
            calibration = calibrate(
                contents,
                meaning,
                self.model,
                self.examples,
                lambda observed, batches: self._observed(options, observed, batches),
            )
            if isinstance(calibration, Calibration):
                fewer = replace(options, dense=meaning.optimize.dense)
                precision = calibration.precision
                reduced = optimize(contents.graph, fewer, precision, self.runner)
                made = self.fastest(fewer, reduced, precision)
                full = None if optimized.user is None else self.fastest(options, optimized)
                if full is None or made.seconds < _SLOWER * full.seconds:
                    return self.shown(made, calibration)
                note = _slower_note(meaning.optimize.dense, made.seconds, full.seconds)
            else:
                note = calibration.note
        except InvalidInput as error:
            if meaning.optimize.on_difference == "refuse":
                raise
            note = f"it computes in f32: {error.message}"
        made = self.shown(self.fastest(options, optimized), None)
        return replace(made, note="; ".join(filter(None, (note, made.note))))

    def shown(self, made: CutVersion, calibration: Calibration | None) -> CutVersion:
        """Say what fewer bits make of its answers, and how its rows flow with them."""
        names = {table.name for table in made.store.plan.tables}
        tables = tuple(
            name
            for name, table in self.meaning.tables.items()
            if name in names and table.rows != "f32"
        )
        if calibration is None and not tables:
            return made
        model = made.model
        with opened_parts(model, made.store.segment) as trial:
            if calibration is not None:
                rows = reduced_rows(
                    self.contents,
                    self.meaning,
                    model,
                    calibration.graph,
                    self.examples,
                    TrialRunner(trial),
                    partial(self._by_row, calibration.precision),
                )
                model = replace(model, rows=rows)
            agreement = shown_agreement(
                self.contents, self.model, self.examples, self._original, trial.run
            )
        reduction = Reduction(
            made.layers,
            tables,
            calibration is not None and calibration.is_made_up,
            made.parity,
            agreement,
        )
        return replace(made, model=model, note=reduction.note)

    def _by_row(self, precision: Int8Precision) -> Optimized:
        """Return what is left without lookups, with fewer bits and nothing once per user."""
        options = _options(self.contents, self.meaning)
        by_row = replace(options, dense=self.meaning.optimize.dense, user_once=False)
        return optimize(self.contents.graph, by_row, precision, self.runner)

    def _make(self, optimized: Optimized, precision: Int8Precision | None) -> CutVersion:
        """Write, import, compare and time.

        Raises:
            InvalidInput: it answers differently, or its rows cannot be kept.
            Unavailable: the cache cannot be written, or there is no memory.
            TooLarge: it does not fit.
        """
        parts = self.files.write(optimized, "f32" if precision is None else precision.digest)
        with opened_parts(parts.model, parts.segment) as trial:
            report = self._compared(optimized, trial)
            graph_examples = tuple(trial.dense_inputs(each.inputs) for each in self.examples)
            seconds = self._seconds(trial)
        return CutVersion(
            model=parts.model,
            store=prepared_store(parts.segment, Segment.open(parts.segment), parts.plan, ()),
            graph_examples=graph_examples,
            verdicts=optimized.verdicts,
            parity=report,
            weight_bytes=parts.weight_bytes,
            seconds=seconds,
            layers=optimized.reduced_layers,
            remarks=optimized.notes,
        )

    def _observed(
        self,
        options: OptimizeOptions,
        observed: Observed,
        batches: Sequence[Mapping[str, Array]],
    ) -> list[Mapping[str, Array]]:
        """Compute batches by a model that shows its activations, its lookups cut out as well."""
        by_row = replace(options, user_once=False)
        optimized = optimize(observed.model, by_row, None, self.runner)
        parts = self.files.write(optimized, "observed")
        model = replace(parts.model, outputs=optimized.outputs)
        with opened_parts(model, parts.segment) as trial:
            return [trial.run(batch) for batch in batches]

    def _compared(self, optimized: Optimized, trial: CutTrial) -> ParityReport:
        """Compare with the original on all cases, users of merged requests among them."""
        budget = self.meaning.optimize.budget
        limits = ParityBudget(budget.max_abs_diff, budget.min_rank_agreement)
        source = self._made_up()
        given = [ParityCase(each.name, each.inputs) for each in self.examples]
        if self._is_reduced:  # for what is seldom, and for the order of many rows
            given.append(ParityCase("many made-up rows", large_batch(self.contents, self.model)))
        rows = self.model.rows
        if optimized.reduced_layers and self.meaning.optimize.dense == "int8_dynamic":
            rows = replace(rows, independent=False, min_rows=1)  # such requests are never merged
        report = compare_cut(optimized, trial, self._original, source, given, rows, limits)
        if not report.ok:
            what = f"in {self.meaning.optimize.dense} and " if optimized.reduced_layers else ""
            raise InvalidInput(
                f"{what}without its lookups it answers differently: {report.difference}"
            )
        return report

    @property
    def _is_reduced(self) -> bool:
        return self.meaning.optimize.dense != "f32" or any(
            table.rows != "f32" for table in self.meaning.tables.values()
        )

    def _original(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return self.runner.run(self.model.path, inputs)

    def _made_up(self) -> ExampleInputs:
        contents = self.contents
        if self._is_reduced:
            return inputs_like_recorded(contents)
        return ExampleInputs(contents.signature, contents.graph, contents.axes)

    def _seconds(self, trial: CutTrial) -> float:
        """Return how long a request of one user takes; 0 where none can be made up."""
        users = self.contents.user_inputs
        if not users:
            return 0.0
        batch = self._made_up().batch(_TIMED_ROWS, np.random.default_rng(_SEED))
        return trial.seconds(of_one_user(batch, users))


def _slower_note(dense: str, reduced: float, full: float) -> str:
    return (
        f"it computes in f32: a request of one user takes {reduced * 1e3:.2f} ms in {dense} and "
        f"{full * 1e3:.2f} ms in f32, of which more is computed once per user"
    )


def _all_left(verdicts: Sequence[LookupVerdict], reason: str) -> tuple[LookupVerdict, ...]:
    return tuple(replace(each, reason=each.reason or reason) for each in verdicts)
