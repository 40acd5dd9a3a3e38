"""Checking a row proof by running: rows alone, together, padded and in parts must agree.

The proof is about the graph; this is about the kernels that run it. Floats may differ by rounding,
because a kernel may sum in another order for another batch size; anything else has to be equal.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.row_flow import RowProof
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_graph_opt.signature import Signature
from anabranch_wire.errors import AnabranchError
from anabranch_wire.tensors import Datatype

__all__ = ["TOLERANCE", "RowCheck", "check_rows"]

TOLERANCE: Final = 1e-5
"""Largest difference of two floats that counts as rounding: TOLERANCE * (1 + |expected|)."""

_COARSE: Final[Mapping[Datatype, float]] = {"FP16": 2.0**-8, "BF16": 2.0**-5}
"""The same for short floats: a few of their steps."""

_CASE_ROWS: Final = (5, 12)
_MAX_SINGLE_ROWS: Final = 6
_MAX_PARTS: Final = 4
_PADDING: Final = 3

Batch = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class RowCheck:
    """Outcome of a check.

    Attributes:
        ok: every way of ordering, cutting and padding the cases gave the same answers.
        difference: the first one that did not, in words; "" where all did.
        min_rows_found: fewest rows that ran: 2 where single rows fail and pairs do not, else 1.
        runs: how often the model was run.
    """

    ok: bool
    difference: str
    min_rows_found: int
    runs: int

    def applied_to(self, proof: RowProof) -> RowProof:
        """The proof as it stands after this check: a proof that fails it is none."""
        if not proof.independent:
            return proof
        if self.ok:
            return replace(proof, min_rows=max(proof.min_rows, self.min_rows_found))
        return replace(
            proof,
            independent=False,
            output_axes={},
            reason=f"the graph says that rows are independent, but runs say: {self.difference}",
            paddable=False,
            splittable=False,
        )


def check_rows(
    runner: ModelRunner,
    model: str | os.PathLike[str] | bytes,
    signature: Signature,
    proof: RowProof,
    cases: Sequence[Batch] | None = None,
    rng: np.random.Generator | None = None,
    axes: Mapping[str, InputAxis] | None = None,
) -> RowCheck:
    """Run a model on rows in several arrangements and compare.

    Rows are shuffled, repeated and padded; where the proof allows it they are also run alone and
    cut into parts. A model that is not splittable is never run on parts: they may be what it cannot
    do.

    Args:
        runner: runs the model.
        model: path or bytes, as the runner takes it.
        signature: of the model.
        proof: what is to be confirmed; it must say `independent`.
        cases: batches to use; made up when left out.
        rng: for shuffles and made-up cases; a fixed seed by default.
        axes: as given to `prove_rows`, for made-up cases.

    Returns:
        the outcome. A model that does not run on a case has not been confirmed: it is not `ok`.
    """
    rng = rng if rng is not None else np.random.default_rng(0)
    if cases is None:
        source = ExampleInputs(signature, model, axes)
        cases = [source.batch(rows, rng) for rows in _CASE_ROWS]
    trial = _Trial(runner, model, signature, proof)
    for case in cases:
        rows = trial.rows_of(case)
        try:
            whole = trial.run(trial.taken(case, _at_least(np.arange(rows), proof.min_rows)))
        except AnabranchError as error:
            failure = f"the model does not run on a batch of {rows}: {error.message}"
            return RowCheck(False, failure, trial.min_rows, trial.runs)
        difference = trial.compare(case, whole, rng)
        if difference:
            return RowCheck(False, difference, trial.min_rows, trial.runs)
    return RowCheck(True, "", trial.min_rows, trial.runs)


def _at_least(rows: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Row numbers, the last one repeated until there are `least`."""
    return np.pad(rows, (0, max(0, least - len(rows))), mode="edge")


@dataclass(slots=True)
class _Trial:
    """Runs of one model; counts them and learns how few rows it takes."""

    runner: ModelRunner
    model: str | os.PathLike[str] | bytes
    signature: Signature
    proof: RowProof
    min_rows: int = 1
    runs: int = 0
    _datatypes: dict[str, Datatype] = field(init=False)

    def __post_init__(self) -> None:
        self._datatypes = {spec.name: spec.datatype for spec in self.signature.outputs}

    def rows_of(self, batch: Batch) -> int:
        """Number of rows of a batch."""
        axes = self.proof.input_axes
        return next(int(batch[n].shape[a]) for n, a in axes.items() if a is not None)

    def taken(self, batch: Batch, rows: NDArray[np.int64]) -> dict[str, Array]:
        """The batch that holds these rows, in this order."""
        return {
            name: batch[name] if axis is None else np.take(batch[name], rows, axis=axis)
            for name, axis in self.proof.input_axes.items()
        }

    def run(self, batch: Batch) -> dict[str, Array]:
        """Run the model once."""
        self.runs += 1
        return self.runner.run(self.model, batch)

    def compare(self, case: Batch, whole: Batch, rng: np.random.Generator) -> str:
        """The first difference between the case run whole and run otherwise; "" for none."""
        rows = self.rows_of(case)
        for what, picked in self._arrangements(rows, rng):
            padded = _at_least(picked, self.proof.min_rows)
            try:
                answers = self.run(self.taken(case, padded))
            except AnabranchError as error:
                if len(padded) > 1:
                    return f"{what} fails where the whole batch does not: {error.message}"
                self.min_rows = 2
                continue
            difference = self._difference(whole, answers, picked)
            if difference:
                return f"{difference} in a batch of {rows}, and {what}"
        return self._single_row_below_minimum(case, whole)

    def _arrangements(
        self, rows: int, rng: np.random.Generator
    ) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Row numbers to run together, with words for them."""
        every = np.arange(rows)
        yield "with its rows shuffled", rng.permutation(every)
        yield "together with other rows", np.concatenate([every, rng.permutation(every)])
        yield "padded with its last row", np.pad(every, (0, _PADDING), mode="edge")
        if not self.proof.splittable:
            return
        for row in rng.permutation(every)[:_MAX_SINGLE_ROWS]:
            # Twice where single rows turned out to fail.
            yield "alone", np.repeat(row, self.min_rows)
        cuts = np.sort(rng.integers(0, rows + 1, _MAX_PARTS - 1))
        for part in np.split(every, cuts):
            if len(part):
                yield f"in a part of {len(part)} rows", _at_least(part, self.min_rows)

    def _single_row_below_minimum(self, case: Batch, whole: Batch) -> str:
        """Whether padding single rows is harmless: they fail, or answer the same."""
        if self.proof.min_rows < 2 or not self.proof.splittable:
            return ""
        try:
            answers = self.run(self.taken(case, np.zeros(1, np.int64)))
        except AnabranchError:
            self.min_rows = 2
            return ""
        for name, axis in self.proof.output_axes.items():
            if axis is None:
                continue
            expected = np.take(whole[name], [0], axis=axis)
            if answers[name].size != expected.size:
                return f"output {name!r} of a row alone has another size than in a batch"
            words = self._apart(name, expected, answers[name].reshape(expected.shape))
            if words:
                return f"{words} in a batch, and alone"
        return ""

    def _difference(self, whole: Batch, answers: Batch, picked: NDArray[np.int64]) -> str:
        for name, axis in self.proof.output_axes.items():
            expected, found = whole[name], answers[name]
            if axis is not None:
                if found.ndim <= axis or found.shape[axis] < len(picked):
                    return f"output {name!r} has shape {list(found.shape)} for {len(picked)} rows"
                expected = np.take(expected, picked, axis=axis)
                found = np.take(found, np.arange(len(picked)), axis=axis)
            if expected.shape != found.shape:
                return f"output {name!r} has shape {list(expected.shape)}, not {list(found.shape)},"
            words = self._apart(name, expected, found)
            if words:
                return words
        return ""

    def _apart(self, name: str, expected: Array, found: Array) -> str:
        """The first pair of elements that differ, in words."""
        datatype = self._datatypes[name]
        if datatype == "BF16":
            expected, found = _widened(expected), _widened(found)
        if expected.dtype.kind == "f":
            a, b = expected.astype(np.float64), found.astype(np.float64)
            slack = _COARSE.get(datatype, TOLERANCE)
            equal = np.isclose(b, a, rtol=slack, atol=slack, equal_nan=True)
        else:
            equal = np.asarray(expected == found)
        if np.all(equal):
            return ""
        at = tuple(int(i) for i in np.argwhere(~equal)[0])
        return f"output {name!r} at {list(at)} is {expected[at]}, not {found[at]},"


def _widened(bits: Array) -> NDArray[np.float32]:
    """bfloat16, carried as 16-bit integers, as float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
