"""Running a version with new weights on few requests, before anybody is served by it.

Rows are those that the version was published with, and made-up ones where lookups stand beside the
graph: what is to be seen are the graphs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.cut_parts import opened_parts
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_model_store.optimized_forms import same_answers
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel

__all__ = ["UpdateTrial"]

Array = NDArray[np.generic]
Answers = Sequence[Mapping[str, Array]]

_MOST: Final = 4
"""Requests that are run; each takes what a batch takes."""
_SEED: Final = 17
_TYPES: Final = {"f32": np.float32, "f16": np.float16}


class UpdateTrial:
    """Runs examples of a version by whatever model takes its place. For one thread."""

    def __init__(self, target: DeltaTarget) -> None:
        self._target = target
        self._examples = target.examples[:_MOST]

    def answers(self, model: DenseModel) -> Answers:
        """Return what a model answers to each example.

        Raises:
            AnabranchError: a graph cannot be built, or cannot compute it.
        """
        if model.cut is not None:
            assert self._target.segment is not None
            with opened_parts(model, self._target.segment) as trial:
                return [trial.run(example) for example in self._examples]
        runner = OrtModelRunner(is_optimized=model.optimized)
        return [runner.run(model.path, inputs) for inputs in self._inputs(model)]

    @staticmethod
    def are_same(one: Answers, two: Answers) -> bool:
        """Whether answers are the same to the last bit."""
        return all(same_answers(first, second) for first, second in zip(one, two, strict=True))

    def check(self, answers: Answers) -> None:
        """Check that some example has an answer in every output.

        Raises:
            DeltaCorrupt: an output is NaN throughout, in every example, and the model's
                serving.yaml does not allow that.
        """
        if not answers or self._target.deployment.deltas.non_finite == "allow":
            return
        for name in answers[0]:
            if all(_is_nothing(each[name]) for each in answers):
                raise DeltaCorrupt(
                    "non_finite",
                    f"with its weights, output {name!r} is NaN for each of {len(answers)} example "
                    "requests (serving.yaml: deltas.non_finite: allow lets it in)",
                )

    def _inputs(self, model: DenseModel) -> Iterator[dict[str, Array]]:
        """Yield examples as the whole graph takes them."""
        names = {spec.name for spec in model.inputs}
        lookups = model.lookups
        buffers = () if lookups is None else lookups.plan.buffers
        rng = np.random.default_rng(_SEED)
        for example in self._examples:
            inputs = {name: array for name, array in example.items() if name in names}
            rows = _rows(model, example)
            for buffer in buffers:
                numbers = rng.normal(size=(rows, buffer.columns))
                inputs[buffer.name] = numbers.astype(_TYPES[buffer.dtype])
            yield inputs


def _rows(model: DenseModel, example: Mapping[str, Array]) -> int:
    """Return the rows of an example that brings some inputs of the graph; 1 where none has any."""
    for spec, axis in zip(model.inputs, model.rows.input_axes, strict=True):
        if axis is not None and spec.name in example:
            return int(example[spec.name].shape[axis])
    return 1


def _is_nothing(array: Array) -> bool:
    """Whether an output is NaN and nothing else."""
    return array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array).all())
