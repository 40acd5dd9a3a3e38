"""Seeing what activations of a version are, and what fewer bits make of its answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.parity.comparison import ParityReport
from anabranch_graph_opt.precision.activation_ranges import Observed, observe
from anabranch_graph_opt.precision.dense_precision import (
    Int8Precision,
    rank_agreement,
    reduced_model,
)
from anabranch_graph_opt.precision.int8_kernels import weight_limit
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.examples import Example
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.recorded_inputs import inputs_like_recorded
from anabranch_model_store.row_layouts import RowQuestion, cut_layout, row_layout
from anabranch_model_store.version_contents import VersionContents
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_wire.errors import AnabranchError, InvalidInput

__all__ = [
    "Calibration",
    "NoLayers",
    "Reduction",
    "Run",
    "calibrate",
    "large_batch",
    "reduced_rows",
    "shown_agreement",
]

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes a batch of the graph's inputs."""
ObservedRun = Callable[[Observed, Sequence[Mapping[str, Array]]], list[Mapping[str, Array]]]
"""Computes batches by a model that shows its activations."""

_ROWS: Final = 256
_BATCHES: Final = 2
_SEED: Final = 83
_SHOWN_SEED: Final = 84


@dataclass(frozen=True, slots=True, eq=False)
class NoLayers:
    """Nothing of a graph is worth fewer bits.

    Attributes:
        note: that, in words.
    """

    note: str


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """How the layers of a version compute with fewer bits.

    Attributes:
        precision: of the layers.
        graph: the whole graph with it.
        layers: how many there are.
        is_made_up: whether the requests that activations were seen on are made up.
    """

    precision: Int8Precision
    graph: ir.Model
    layers: int
    is_made_up: bool


def calibrate(
    contents: VersionContents,
    meaning: ModelMeaning,
    model: DenseModel,
    examples: Sequence[Example],
    run: ObservedRun,
) -> Calibration | NoLayers:
    """Find out how the layers of a version compute with fewer bits, as its model.yaml wants it.

    Args:
        contents: of its files.
        meaning: its model.yaml.
        model: the original.
        examples: requests that it computes.
        run: runs the graph once it was made to show its activations.

    Raises:
        InvalidInput: there is no request to calibrate with, or a graph cannot compute one.
    """
    activations = None
    is_made_up = False
    if meaning.optimize.dense == "int8":
        observed = observe(contents.graph)
        if not observed.activations:
            return NoLayers("it computes in f32: no layer is large enough to gain by int8")
        batches, is_made_up = _batches(contents, model, examples)
        activations = observed.ranges(run(observed, batches))
    precision = Int8Precision(activations, weight_limit(OrtModelRunner()))
    graph, layers = reduced_model(contents.graph, precision)
    if not layers:
        return NoLayers("it computes in f32: no layer is one that int8 gains by")
    return Calibration(precision, graph, len(layers), is_made_up)


def _batches(
    contents: VersionContents, model: DenseModel, examples: Sequence[Example]
) -> tuple[list[Mapping[str, Array]], bool]:
    """Return batches to calibrate with, and whether they are made up."""
    given = [example.inputs for example in examples]
    if not given:
        raise InvalidInput(
            "optimize.dense: int8: there is no request to calibrate with; put some into warmup/"
        )
    if contents.samples:
        return given, False
    if contents.lookups is not None:  # their rows cannot be made up, those of tables are at hand
        return given, True
    source = ExampleInputs(contents.signature, contents.graph, contents.axes)
    rng = np.random.default_rng(_SEED)
    rows = max(_ROWS, model.rows.min_rows)
    return [source.batch(rows, rng) for _ in range(_BATCHES)], True


def reduced_rows(
    contents: VersionContents,
    meaning: ModelMeaning,
    model: DenseModel,
    graph: ir.Model,
    examples: Sequence[Example],
    runner: ModelRunner,
    without_lookups: Callable[[], Optimized] | None = None,
) -> RowLayout:
    """Return how rows flow through a graph with fewer bits: proven, and confirmed by running it.

    Args:
        contents: of the version.
        meaning: its model.yaml.
        model: the original; where its rows are not independent, these are not either.
        graph: the whole graph with fewer bits.
        examples: requests that it computes.
        runner: runs it, whatever path it is given.
        without_lookups: makes what is left of it by row where its lookups are cut.

    Raises:
        InvalidInput: model.yaml says that rows are independent, and they are not.
    """
    if not model.rows.independent:
        return model.rows
    source = None
    if contents.lookups is None:
        source = inputs_like_recorded(contents)
    samples = [example.inputs for example in examples]
    question = RowQuestion(model.path, graph, contents.signature, contents.axes, source, samples)
    # Scales that come from the batch couple its rows, whatever a person says of the original.
    is_dynamic = meaning.optimize.dense == "int8_dynamic"
    claim = "auto" if is_dynamic else meaning.row_independent
    layout = row_layout(question, claim, runner)
    if layout.independent or without_lookups is None:
        return layout
    return cut_layout(question, layout, claim, without_lookups(), runner)


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """What fewer bits make of the answers of a version.

    Attributes:
        layers: that compute in int8.
        tables: whose rows are kept with fewer bits.
        is_made_up: whether layers were calibrated on made-up requests.
        parity: what the comparison with the original gave.
        rank_agreement: share of pairs of rows that keep their order.
    """

    layers: int
    tables: tuple[str, ...]
    is_made_up: bool
    parity: ParityReport
    rank_agreement: float

    @property
    def note(self) -> str:
        """All that in words."""
        parts = []
        if self.layers:
            word = "layer computes" if self.layers == 1 else "layers compute"
            parts.append(f"{self.layers} {word} in int8")
        if self.tables:
            parts.append(f"rows of {', '.join(self.tables)} are kept with fewer bits")
        text = (
            f"{', '.join(parts)}: answers differ by up to {self.parity.max_abs_diff:.2g}, "
            f"{self.rank_agreement:.2%} of the pairs of rows keep their order"
        )
        if self.is_made_up:
            text += "; scales are from made-up requests: put recorded ones into warmup/"
        return text


def shown_agreement(
    contents: VersionContents,
    model: DenseModel,
    examples: Sequence[Example],
    original: Run,
    reduced: Run,
) -> float:
    """Return the share of pairs of rows that keep their order, on a large batch and all examples.

    Args:
        contents: of the version.
        model: the original.
        examples: requests that it computes.
        original: computes a batch by the original.
        reduced: by what takes its place.
    """
    batches = [example.inputs for example in examples]
    if contents.lookups is None:
        batches.append(large_batch(contents, model))
    lowest = 1.0
    for batch in batches:
        try:
            expected, found = original(batch), reduced(batch)
        except AnabranchError:
            continue  # both refuse it, as the comparison saw
        for name, array in expected.items():
            if np.issubdtype(array.dtype, np.floating):
                lowest = min(lowest, rank_agreement(array, found[name]))  # type: ignore[arg-type]
    return lowest


def large_batch(contents: VersionContents, model: DenseModel) -> Mapping[str, Array]:
    """Return a made-up batch of other rows than those that calibrate."""
    source = inputs_like_recorded(contents)
    return source.batch(max(_ROWS, model.rows.min_rows), np.random.default_rng(_SHOWN_SEED))
