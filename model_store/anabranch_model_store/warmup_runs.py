"""Running a version's warm-up requests once, before any executor does, and made-up ones instead."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.comparing import check_answers
from anabranch_model_store.examples import Example
from anabranch_model_store.warmup_files import Sample
from anabranch_runtime.models import DenseModel
from anabranch_wire.errors import AnabranchError, InvalidInput

__all__ = ["MakeUp", "Pad", "made_up_examples", "plain_example", "plain_make_up", "proven_examples"]

MakeUp = Callable[[int, np.random.Generator], Example]
"""Makes up a request of so many rows."""
Pad = Callable[[Example, int, int], Example]
"""Repeats the last of so many rows so many times more."""

_ROWS: Final = (1, 16)
_SEED: Final = 42


def proven_examples(
    samples: Sequence[Example],
    model: DenseModel,
    max_abs_diff: float,
    runner: ModelRunner,
    pad: Pad | None = None,
) -> tuple[Example, ...]:
    """Run the requests that a version brings along, and compare where answers are given.

    Args:
        samples: the requests.
        model: what they are for.
        max_abs_diff: of answers.
        runner: runs the graph.
        pad: for requests that are looked up; None: they are the inputs of the graph.

    Returns:
        the requests, padded to the rows that the graph needs.

    Raises:
        InvalidInput: a request fails, or has other answers than its file says.
    """
    examples: list[Example] = []
    for sample in samples:
        padded, rows = _padded(sample, model, pad or _pad_plain(model))
        try:
            found = runner.run(model.path, padded.inputs)
        except AnabranchError as error:
            raise InvalidInput(f"{sample.name}: {error.message}") from error
        check_answers(
            _without_padding(found, model, rows), sample.expected, max_abs_diff, sample.name
        )
        examples.append(padded)
    return tuple(examples)


def made_up_examples(
    make_up: MakeUp, model: DenseModel, runner: ModelRunner
) -> tuple[Example, ...]:
    """Return made-up requests that the graph computes, the smallest first.

    Raises:
        InvalidInput: it computes none of them.
    """
    rng = np.random.default_rng(_SEED)
    examples: list[Example] = []
    failure = ""
    for rows in _ROWS:
        try:
            example = make_up(max(rows, model.rows.min_rows), rng)
            runner.run(model.path, example.inputs)
        except AnabranchError as error:
            failure = error.message
        else:
            examples.append(example)
    if not examples:
        raise InvalidInput(
            f"the graph computes no request that could be made up: {failure}; put a request "
            "that it computes into warmup/ of the version"
        )
    return tuple(examples)


def plain_example(sample: Sample) -> Example:
    """Return a request that is the inputs of the graph."""
    return Example(sample.name, sample.inputs, sample.inputs, sample.expected)


def plain_make_up(source: ExampleInputs) -> MakeUp:
    """Return what makes up requests that are the inputs of the graph."""

    def make_up(rows: int, rng: np.random.Generator) -> Example:
        inputs = source.batch(rows, rng)
        return Example("a made-up request", inputs, inputs)

    return make_up


def _pad_plain(model: DenseModel) -> Pad:
    """Return what pads requests that are the inputs of the graph."""
    axes = _row_axes(model)

    def pad(example: Example, rows: int, missing: int) -> Example:
        picked = np.pad(np.arange(rows), (0, missing), mode="edge")
        inputs = {
            name: np.take(array, picked, axis=axes[name]) if name in axes else array
            for name, array in example.inputs.items()
        }
        return replace(example, request=inputs, inputs=inputs)

    return pad


def _row_axes(model: DenseModel) -> dict[str, int]:
    return {
        spec.name: axis
        for spec, axis in zip(model.inputs, model.rows.input_axes, strict=True)
        if axis is not None
    }


def _padded(example: Example, model: DenseModel, pad: Pad) -> tuple[Example, int | None]:
    """Repeat the last row up to the fewest rows that run; also return how many rows there were.

    Raises:
        InvalidInput: inputs disagree on the number of rows.
    """
    sizes = {name: example.inputs[name].shape[axis] for name, axis in _row_axes(model).items()}
    if not sizes:
        return example, None
    if len(set(sizes.values())) > 1:
        raise InvalidInput(f"{example.name}: inputs disagree on the number of rows: {sizes}")
    rows = next(iter(sizes.values()))
    missing = model.rows.min_rows - rows
    if missing <= 0 or rows == 0:
        return example, rows
    return pad(example, rows, missing), rows


def _without_padding(
    outputs: Mapping[str, Array], model: DenseModel, rows: int | None
) -> dict[str, Array]:
    kept = dict(outputs)
    if rows is not None and model.rows.min_rows > 1:
        for spec in model.outputs:
            kept[spec.name] = outputs[spec.name][:rows]  # padding needs the rows on axis 0
    return kept
