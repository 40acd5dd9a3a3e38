"""Running a version's warm-up requests once, before any executor does, and made-up ones instead."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.comparing import check_answers
from anabranch_model_store.warmup_files import Sample
from anabranch_runtime.models import DenseModel
from anabranch_wire.errors import AnabranchError, InvalidInput

__all__ = ["made_up_examples", "proven_examples"]

Inputs = Mapping[str, Array]

_ROWS: Final = (1, 16)
_SEED: Final = 42


def proven_examples(
    samples: Sequence[Sample], model: DenseModel, max_abs_diff: float, runner: ModelRunner
) -> tuple[Inputs, ...]:
    """Run the requests that a version brings along, and compare where answers are given.

    Returns:
        their inputs, padded to the rows that the graph needs.

    Raises:
        InvalidInput: a request fails, or has other answers than its file says.
    """
    examples: list[Inputs] = []
    for sample in samples:
        padded, rows = _padded(sample, model)
        try:
            found = runner.run(model.path, padded)
        except AnabranchError as error:
            raise InvalidInput(f"{sample.name}: {error.message}") from error
        check_answers(
            _without_padding(found, model, rows), sample.expected, max_abs_diff, sample.name
        )
        examples.append(padded)
    return tuple(examples)


def made_up_examples(
    source: ExampleInputs, model: DenseModel, runner: ModelRunner
) -> tuple[Inputs, ...]:
    """Return made-up requests that the graph computes, the smallest first.

    Raises:
        InvalidInput: it computes none of them.
    """
    rng = np.random.default_rng(_SEED)
    examples: list[Inputs] = []
    failure = ""
    for rows in _ROWS:
        inputs = source.batch(max(rows, model.rows.min_rows), rng)
        try:
            runner.run(model.path, inputs)
        except AnabranchError as error:
            failure = error.message
        else:
            examples.append(inputs)
    if not examples:
        raise InvalidInput(
            f"the graph computes no request that could be made up: {failure}; put a request "
            "that it computes into warmup/ of the version"
        )
    return tuple(examples)


def _padded(sample: Sample, model: DenseModel) -> tuple[Inputs, int | None]:
    """Repeat the last row up to the fewest rows that run; also return how many rows there were.

    Raises:
        InvalidInput: inputs disagree on the number of rows.
    """
    inputs = sample.inputs
    axes = {
        spec.name: axis
        for spec, axis in zip(model.inputs, model.rows.input_axes, strict=True)
        if axis is not None
    }
    sizes = {name: inputs[name].shape[axis] for name, axis in axes.items()}
    if not sizes:
        return inputs, None
    if len(set(sizes.values())) > 1:
        raise InvalidInput(f"{sample.name}: inputs disagree on the number of rows: {sizes}")
    rows = next(iter(sizes.values()))
    missing = model.rows.min_rows - rows
    if missing <= 0 or rows == 0:
        return inputs, rows
    picked = np.pad(np.arange(rows), (0, missing), mode="edge")
    return {
        name: np.take(array, picked, axis=axes[name]) if name in axes else array
        for name, array in inputs.items()
    }, rows


def _without_padding(
    outputs: Mapping[str, Array], model: DenseModel, rows: int | None
) -> dict[str, Array]:
    kept = dict(outputs)
    if rows is not None and model.rows.min_rows > 1:
        for spec in model.outputs:
            kept[spec.name] = outputs[spec.name][:rows]  # padding needs the rows on axis 0
    return kept
