"""The check of a proof: what it runs, what it finds, what becomes of the proof."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import parser

from anabranch_graph_opt.row_check import RowCheck, check_rows
from anabranch_graph_opt.row_flow import RowProof, prove_rows
from anabranch_graph_opt.running import Array
from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.errors import InvalidInput

Floats = NDArray[np.float32]
Rows = Callable[[Floats], Floats]


def model(nodes: str, outputs: str = "float[N, M] y", inputs: str = "float[N, 4] x") -> bytes:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'
    content: bytes = parser.parse_model(text).SerializeToString()
    return content


HARMLESS = model("y = Relu(x)")


class Kernel:
    """A runner whose kernel computes y from x by a function, and counts the rows it was given."""

    def __init__(self, function: Rows) -> None:
        self._function = function
        self.rows: list[int] = []

    def run(self, model: object, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.rows.append(len(inputs["x"]))
        return {"y": self._function(np.asarray(inputs["x"], np.float32))}


def check(function: Rows, proof: RowProof | None = None, rows: int = 5) -> tuple[RowCheck, Kernel]:
    kernel = Kernel(function)
    case = {"x": np.random.default_rng(1).random((rows, 4)).astype(np.float32)}
    proof = proof or prove_rows(HARMLESS)
    return check_rows(kernel, HARMLESS, read_signature(HARMLESS), proof, [case]), kernel


def test_rows_are_run_alone_in_parts_together_and_padded() -> None:
    outcome, kernel = check(lambda x: x)

    assert outcome == RowCheck(True, "", 1, len(kernel.rows))
    assert {1, 5, 8, 10} <= set(kernel.rows)


def test_a_kernel_that_mixes_rows_is_found() -> None:
    outcome, _ = check(lambda x: x - x.max(axis=0))

    assert not outcome.ok
    assert outcome.difference.startswith("output 'y' at [")


def test_a_kernel_that_answers_by_position_is_found() -> None:
    assert not check(lambda x: x + np.arange(len(x), dtype=np.float32)[:, None])[0].ok


def test_a_kernel_whose_answers_depend_on_the_number_of_rows_is_found() -> None:
    assert not check(lambda x: x / np.float32(len(x)))[0].ok


def test_rounding_is_no_difference_and_more_is() -> None:
    assert check(lambda x: x + np.float32(4e-6 * (len(x) == 5)))[0].ok
    assert not check(lambda x: x + np.float32(1e-4 * (len(x) == 5)))[0].ok


def test_not_a_number_equals_itself() -> None:
    assert check(lambda x: np.full_like(x, np.nan))[0].ok


def test_single_rows_that_fail_ask_for_two() -> None:
    def squeezing(x: Floats) -> Floats:
        if len(x) == 1:
            raise InvalidInput("no")
        return x

    outcome, kernel = check(squeezing)

    assert (outcome.ok, outcome.min_rows_found) == (True, 2)
    assert outcome.applied_to(prove_rows(HARMLESS)).min_rows == 2
    assert min(kernel.rows[kernel.rows.index(1) + 1 :]) == 2


def test_parts_that_fail_refute_the_proof() -> None:
    def large_only(x: Floats) -> Floats:
        if len(x) < 4:
            raise InvalidInput("too few")
        return x

    outcome, _ = check(large_only)

    assert not outcome.ok
    assert "fails where the whole batch does not: too few" in outcome.difference


def test_single_rows_that_answer_otherwise_refute_a_proof_for_two_rows() -> None:
    def otherwise(x: Floats) -> Floats:
        return x + np.float32(len(x) == 1)

    proof = RowProof(True, 2, {"x": 0}, {"y": 0}, "", paddable=True, splittable=True)

    assert "alone" in check(otherwise, proof)[0].difference
    assert check(lambda x: x, proof)[0].ok


def test_what_may_not_be_split_is_never_run_in_parts() -> None:
    proof = RowProof(True, 1, {"x": 0}, {"y": 0}, "", paddable=True, splittable=False)

    outcome, kernel = check(lambda x: x, proof)

    assert outcome.ok
    assert min(kernel.rows) == 5


def test_a_refuted_proof_is_none_and_says_why() -> None:
    proof = prove_rows(HARMLESS)

    after = check(lambda x: x - x.max(axis=0))[0].applied_to(proof)

    assert (after.independent, after.paddable, after.splittable) == (False, False, False)
    assert after.reason.startswith("the graph says that rows are independent, but runs say: output")
    assert after.input_axes == proof.input_axes


def test_a_model_that_does_not_run_is_not_confirmed() -> None:
    def broken(x: Floats) -> Floats:
        raise InvalidInput("no kernel")

    outcome, _ = check(broken)

    assert (outcome.ok, outcome.runs) == (False, 1)
    assert outcome.difference == "the model does not run on a batch of 5: no kernel"


def test_outputs_of_a_wrong_size_are_found() -> None:
    assert "has shape [1, 4] for" in check(lambda x: x[:1])[0].difference


@pytest.mark.parametrize(
    ("inputs", "nodes", "outputs"),
    [
        ("float16[N, 4] x", "y = Softmax(x)", "float16[N, M] y"),
        ("int64[N, 4] x", "y = Mul(x, x)", "int64[N, M] y"),
        ("string[N] x", "y = Identity(x)", "string[N] y"),
        ("float[N, 4] x, float[1] u", "y = Mul(x, u) z = Exp(u)", "float[N, M] y, float[1] z"),
    ],
)
def test_made_up_cases_of_every_kind(inputs: str, nodes: str, outputs: str) -> None:
    content = model(nodes, outputs, inputs)
    signature = read_signature(content)
    proof = prove_rows(content)

    assert proof.independent
    assert check_rows(OrtModelRunner(), content, signature, proof).ok
