"""How rows flow through a version: what the graph proves, what runs confirm, what a person says.

Rows are called independent only where runs confirm it, whoever claims it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.row_axes import InputAxis, resolve_row_axes
from anabranch_graph_opt.row_check import check_rows
from anabranch_graph_opt.row_flow import RowProof, prove_rows
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_graph_opt.signature import Signature
from anabranch_runtime.models import RowLayout
from anabranch_wire.errors import AnabranchError, InvalidInput

__all__ = ["RowQuestion", "cut_layout", "row_layout"]

Claim = bool | Literal["auto"]

_CASE_ROWS: Final = (12, 5)
_SEED: Final = 20


@dataclass(frozen=True, slots=True)
class RowQuestion:
    """A graph whose row layout is asked for.

    Attributes:
        path: of the ONNX file, as the runner takes it.
        graph: the same file, opened.
        signature: of the graph.
        axes: what model.yaml says about axis 0 of inputs.
        examples: makes inputs up; None where that is not wanted.
        samples: inputs that the version brings along.
    """

    path: Path
    graph: ir.Model
    signature: Signature
    axes: Mapping[str, InputAxis]
    examples: ExampleInputs | None
    samples: Sequence[Mapping[str, Array]]


def row_layout(question: RowQuestion, claim: Claim, runner: ModelRunner) -> RowLayout:
    """Return how rows flow through a graph.

    Args:
        question: the graph.
        claim: `row_independent` of model.yaml. False is taken at its word; True stands for what the
            graph does not prove, but runs have to confirm it.
        runner: runs the graph.

    Raises:
        InvalidInput: the claim is True and runs, or the inputs, contradict it; or axes do not fit
            the graph.
    """
    proof = prove_rows(question.graph, question.axes)
    if claim is False:
        return _apart(question, proof, "model.yaml says so (row_independent: false)")
    if claim is True and not proof.independent:
        proof = _claimed(question, proof)
    if not proof.independent:
        return _apart(question, proof, proof.reason)
    cases = _cases(question, proof.input_axes, runner)
    if not cases:
        reason = "no request to check that with: warmup/ has none, and none are to be made up"
        return _apart(question, proof, f"rows may be independent, but there is {reason}")
    check = check_rows(runner, question.path, question.signature, proof, cases)
    if claim is True and not check.ok:
        raise InvalidInput(f"model.yaml: row_independent: true, but {check.difference}")
    return _layout(question.signature, check.applied_to(proof))


def cut_layout(
    question: RowQuestion,
    layout: RowLayout,
    claim: Claim,
    optimized: Optimized,
    runner: ModelRunner,
) -> RowLayout:
    """Return how rows flow through a graph, by what is left of it once its lookups are cut.

    Ids on their way to a lookup may take turns that are not followed in the graph, while the cut
    has found which row each of them comes from. Where the rest keeps rows apart, so does the whole;
    and runs of the whole have to confirm that too.

    Args:
        question: the graph.
        layout: what is known of it, which is returned where nothing better is found.
        claim: `row_independent` of model.yaml.
        optimized: the graph without lookups, all of it run by row.
        runner: runs the graph.
    """
    if layout.independent or claim != "auto":
        return layout
    whole = prove_rows(question.graph, question.axes)
    if whole.independent:  # runs contradict it
        return layout
    rest = _proof_without_lookups(question, whole, optimized)
    cases = [] if rest is None else _cases(question, rest.input_axes, runner)
    if rest is None or not cases:
        return layout
    check = check_rows(runner, question.path, question.signature, rest, cases)
    return _layout(question.signature, check.applied_to(rest)) if check.ok else layout


def _proof_without_lookups(
    question: RowQuestion, whole: RowProof, optimized: Optimized
) -> RowProof | None:
    """Prove rows of what makes ids and of what takes rows; None where either is not proven."""
    axes = resolve_row_axes(question.signature, question.axes)
    kinds = axes.kinds
    if axes.unclear or not {axis.kind for axis in kinds.values()} <= {"rows", "none"}:
        return None
    buffers = {
        buffer.name: InputAxis("rows" if buffer.side == "row" else "none")
        for buffer in optimized.buffers
    }
    own = {name: kinds[name] for name in optimized.pass_through}
    dense = prove_rows(optimized.dense, {**own, **buffers})
    proofs = [dense]
    if optimized.prelude is not None:
        taken = {str(value.name) for value in optimized.prelude.graph.inputs}
        proofs.append(prove_rows(optimized.prelude, {name: kinds[name] for name in taken}))
    if not all(proof.independent for proof in proofs):
        return None
    return replace(
        dense,
        min_rows=max(proof.min_rows for proof in proofs),
        input_axes=whole.input_axes,
        paddable=all(proof.paddable for proof in proofs),
        splittable=all(proof.splittable for proof in proofs),
    )


def _claimed(question: RowQuestion, proof: RowProof) -> RowProof:
    """What the modeller's word makes of a proof that failed."""
    kinds = {axis.kind for axis in question.axes.values()}
    if "bag" in kinds or "ids" in kinds:
        return proof  # true or not, such requests run one by one
    unclear = resolve_row_axes(question.signature, question.axes).unclear
    if unclear or all(axis is None for axis in proof.input_axes.values()):
        raise InvalidInput(f"model.yaml: row_independent: true, but {proof.reason}")
    return RowProof(
        independent=True,
        min_rows=1,
        input_axes=proof.input_axes,
        output_axes={spec.name: 0 for spec in question.signature.outputs},
        reason="",
        paddable=True,
        splittable=True,
    )


def _cases(
    question: RowQuestion, input_axes: Mapping[str, int | None], runner: ModelRunner
) -> list[Mapping[str, Array]]:
    """Batches to check with: made up ones, and those that somebody stands for.

    Where there are any of the latter, a made-up one that does not run says nothing.
    """
    axes = {name: axis for name, axis in input_axes.items() if axis is not None}
    given = [
        sample
        for sample in question.samples
        if len(rows := {sample[name].shape[axis] for name, axis in axes.items()}) == 1 and any(rows)
    ]
    rng = np.random.default_rng(_SEED)
    source = question.examples
    made_up = [] if source is None else [source.batch(rows, rng) for rows in _CASE_ROWS]
    if given:
        made_up = [batch for batch in made_up if _runs(runner, question.path, batch)]
    return [*made_up, *given]


def _runs(runner: ModelRunner, path: Path, batch: Mapping[str, Array]) -> bool:
    try:
        runner.run(path, batch)
    except AnabranchError:
        return False
    return True


def _layout(signature: Signature, proof: RowProof) -> RowLayout:
    return RowLayout(
        independent=proof.independent,
        min_rows=proof.min_rows if proof.independent else 1,
        input_axes=tuple(proof.input_axes[spec.name] for spec in signature.inputs),
        output_axes=tuple(proof.output_axes.get(spec.name) for spec in signature.outputs),
        reason=proof.reason,
        splittable=proof.splittable,
    )


def _apart(question: RowQuestion, proof: RowProof, reason: str) -> RowLayout:
    """The layout of a graph whose requests each run as they came."""
    axes = dict(proof.input_axes)
    if resolve_row_axes(question.signature, question.axes).unclear:
        axes = dict.fromkeys(axes)  # nobody knows which of them have to agree
    apart = replace(
        proof, independent=False, input_axes=axes, output_axes={}, reason=reason, splittable=False
    )
    return _layout(question.signature, apart)
