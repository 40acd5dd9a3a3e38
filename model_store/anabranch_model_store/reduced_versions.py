"""A version whose graph runs whole, but with fewer bits: compared with the original before it does.

Where lookups are cut out of the graph, `cut_versions` does the same to what is left.
"""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_graph_opt.graph_files import write_graph
from anabranch_graph_opt.parity.cases import ParityCase
from anabranch_graph_opt.parity.comparison import ParityBudget, compare
from anabranch_graph_opt.precision.activation_ranges import Observed
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.calibration import (
    NoLayers,
    Reduction,
    calibrate,
    large_batch,
    reduced_rows,
    shown_agreement,
)
from anabranch_model_store.examples import Example
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.optimiser_faults import NOT_FAULTS
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.recorded_inputs import inputs_like_recorded
from anabranch_model_store.version_contents import VersionContents
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel
from anabranch_wire.errors import InvalidInput

__all__ = ["ReducedVersion", "UnreducedVersion", "reduce_version"]

_log = logging.getLogger(__name__)

_FORMAT: Final = "reduced 1"
_FILE: Final = "reduced.onnx"
_ROWS: Final = (1, 2, 7, 33)
_SEED: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class ReducedVersion:
    """A version whose graph computes with fewer bits.

    Attributes:
        model: what runs in place of the original; it has the same inputs and outputs.
        reduction: what that makes of its answers.
        weight_bytes: of its graph.
    """

    model: DenseModel
    reduction: Reduction
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class UnreducedVersion:
    """A version whose graph computes as it was published.

    Attributes:
        note: why, in words.
    """

    note: str


def reduce_version(
    contents: VersionContents,
    digest: str,
    meaning: ModelMeaning,
    settings: StoreSettings,
    model: DenseModel,
    examples: Sequence[Example],
    runner: ModelRunner,
) -> ReducedVersion | UnreducedVersion:
    """Give the layers of a version fewer bits, as its model.yaml wants it.

    What that trips over leaves the version as it was, with a note and a line in the log.

    Args:
        contents: of its files.
        digest: of its graph, external weights among it.
        meaning: its model.yaml.
        settings: where graphs are kept.
        model: the original.
        examples: requests that it computes.
        runner: runs graphs.

    Raises:
        InvalidInput: it answers differently, and model.yaml wants such a version refused.
        Unavailable: the cache cannot be written.
    """
    try:
        return _reduced(contents, digest, meaning, settings, model, examples, runner)
    except InvalidInput as error:
        if meaning.optimize.on_difference == "refuse":
            raise InvalidInput(f"optimize.on_difference: refuse: {error.message}") from None
        return UnreducedVersion(f"it computes in f32: {error.message}")
    except NOT_FAULTS:
        raise
    except Exception as error:  # whatever it is, the version was found good as it is
        _log.error("a version computes in f32: its graph cannot be reduced", exc_info=error)
        kind = type(error).__name__
        return UnreducedVersion(
            f"it computes in f32: {kind} while it was reduced; the log of the loader says where"
        )


def _reduced(
    contents: VersionContents,
    digest: str,
    meaning: ModelMeaning,
    settings: StoreSettings,
    model: DenseModel,
    examples: Sequence[Example],
    runner: ModelRunner,
) -> ReducedVersion | UnreducedVersion:
    assert settings.graphs is not None
    own = OrtModelRunner()  # beside the other, which keeps the original

    def observed_answers(
        observed: Observed, batches: Sequence[Mapping[str, Array]]
    ) -> list[Mapping[str, Array]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            write_graph(observed.model, path)
            return [own.run(path, batch) for batch in batches]

    calibration = calibrate(contents, meaning, model, examples, observed_answers)
    if isinstance(calibration, NoLayers):
        return UnreducedVersion(calibration.note)
    key = "\n".join((_FORMAT, digest, calibration.precision.digest))
    folder = settings.graphs.get(key, lambda place: write_graph(calibration.graph, place / _FILE))
    made = replace(model, path=folder / _FILE)

    def original(batch: Mapping[str, Array]) -> Mapping[str, Array]:
        return runner.run(model.path, batch)

    def reduced(batch: Mapping[str, Array]) -> Mapping[str, Array]:
        return own.run(made.path, batch)

    budget = meaning.optimize.budget
    limits = ParityBudget(budget.max_abs_diff, budget.min_rank_agreement)
    report = compare(original, reduced, _cases(contents, model, examples), limits)
    if not report.ok:
        what = f"in {meaning.optimize.dense} it answers differently"
        raise InvalidInput(f"{what}: {report.difference}")
    rows = reduced_rows(contents, meaning, made, calibration.graph, examples, own)
    agreement = shown_agreement(contents, model, examples, original, reduced)
    reduction = Reduction(calibration.layers, (), calibration.is_made_up, report, agreement)
    size = sum(path.stat().st_size for path in folder.iterdir())
    return ReducedVersion(replace(made, rows=rows), reduction, size)


def _cases(
    contents: VersionContents, model: DenseModel, examples: Sequence[Example]
) -> Iterator[ParityCase]:
    """Yield the version's requests, and made-up ones where rows need not come from tables."""
    for example in examples:
        yield ParityCase(example.name, example.inputs)
    if contents.lookups is not None:
        return
    source = inputs_like_recorded(contents)
    rng = np.random.default_rng(_SEED)
    for rows in _ROWS:
        if rows >= model.rows.min_rows:
            yield ParityCase(f"{rows} made-up rows", source.batch(rows, rng))
    batch = large_batch(contents, model)
    yield ParityCase("many made-up rows", batch)
