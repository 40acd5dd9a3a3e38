"""What a proof says besides yes and no: fewest rows, axes, parts, and reasons."""

import onnx
import pytest
from onnx import parser

from anabranch_graph_opt.row_flow import prove_rows

TWO_OR_MORE = 2


def graph(
    nodes: str,
    inputs: str = "float[N, 4] x",
    outputs: str = "float[N, M] y",
    weights: str = "int64[1] first = {0}, int64[1] second = {1}",
    functions: str = "",
) -> onnx.ModelProto:
    domains = ', "local" : 1' if functions else ""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17{domains}]> '
        f"g ({inputs}) => ({outputs}) <{weights}> {{ {nodes} }} {functions}"
    )


def test_a_squeeze_of_all_axes_needs_two_rows() -> None:
    proof = prove_rows(graph("a = Unsqueeze(x, second) b = Squeeze(a) y = Relu(b)"))

    assert (proof.independent, proof.min_rows) == (True, TWO_OR_MORE)
    assert proof.paddable


def test_a_squeeze_of_a_named_axis_does_not() -> None:
    proof = prove_rows(graph("a = Unsqueeze(x, second) b = Squeeze(a, second) y = Relu(b)"))

    assert (proof.independent, proof.min_rows) == (True, 1)


def test_a_branch_for_single_rows_needs_two_rows() -> None:
    proof = prove_rows(
        graph(
            """n = Shape <end = 1> (x) single = Equal(n, second)
            y = If (single) <then_branch = a () => (float[4] p) { p = Squeeze(x) },
                             else_branch = b () => (float[N, 4] q) { q = Identity(x) }>"""
        )
    )

    assert (proof.independent, proof.min_rows) == (True, TWO_OR_MORE)


def test_what_no_output_depends_on_asks_for_nothing() -> None:
    proof = prove_rows(graph("dead = Squeeze(x) deader = ReduceMax(dead) y = Relu(x)"))

    assert (proof.independent, proof.min_rows) == (True, 1)


def test_rows_may_leave_along_another_axis() -> None:
    proof = prove_rows(graph("y = Transpose(x)", outputs="float[M, N] y"))

    assert proof.output_axes == {"y": 1}


def test_an_output_may_be_the_same_for_every_request() -> None:
    proof = prove_rows(
        graph("y = Relu(x) z = Exp(w)", outputs="float[N, 4] y, float[2] z",
              weights="float[2] w = {1, 2}")
    )  # fmt: skip

    assert proof.independent
    assert proof.output_axes == {"y": 0, "z": None}


def test_one_mixing_output_is_enough_and_is_named() -> None:
    proof = prove_rows(
        graph("y = Relu(x) z = ReduceMean <axes = [0]> (x)", outputs="float[N, 4] y, float[1, 4] z")
    )

    assert proof.reason.startswith("output 'z': ")
    assert proof.output_axes == {}


def test_the_number_of_rows_is_no_answer() -> None:
    proof = prove_rows(graph("y = Relu(x) z = Shape(x)", outputs="float[N, 4] y, int64[2] z"))

    assert "output 'z': it holds the number of rows" in proof.reason


def test_several_entries_for_a_row_are_no_row_axis() -> None:
    proof = prove_rows(graph("y = Reshape(x, flat)", outputs="float[M] y",
                             weights="int64[1] flat = {-1}"))  # fmt: skip

    assert "its axis 0 holds several entries for each row" in proof.reason


def test_rows_that_are_picked_by_data_may_be_merged_but_not_cut() -> None:
    proof = prove_rows(
        graph(
            """v = ReduceSum <keepdims = 0> (x, second) m = Greater(v, h) k = NonZero(m)
            i = Transpose(k) p = GatherND(x, i) t = Neg(p) y = ScatterND(x, i, t)""",
            weights="int64[1] second = {1}, float h = {2.0}",
        )
    )

    assert proof.independent
    assert proof.paddable
    assert not proof.splittable


@pytest.mark.parametrize(
    ("body", "independent"),
    [("m = ReduceMax <axes = [1]> (a)", True), ("m = ReduceMax (a)", False)],
)
def test_local_functions_are_looked_into(body: str, independent: bool) -> None:
    model = graph(
        "y = local.centred(x)",
        functions='<domain: "local", opset_import: ["" : 17]> '
        f"centred (a) => (b) {{ {body} b = Sub(a, m) }}",
    )
    before = model.SerializeToString()

    assert prove_rows(model).independent == independent
    assert model.SerializeToString() == before


def test_weights_that_double_as_inputs_are_weights() -> None:
    proof = prove_rows(graph("y = Mul(x, w)", inputs="float[N, 4] x, float[4] w",
                             weights="float[4] w = {1, 2, 3, 4}"))  # fmt: skip

    assert proof.input_axes == {"x": 0}


def test_masks_of_positions_within_a_row_are_harmless() -> None:
    proof = prove_rows(
        graph(
            """sizes = Shape <start = 1> (s) length = Gather(sizes, zero)
            square = Concat <axis = 0> (length, length) full = ConstantOfShape(square)
            upper = Trilu(full) scores = Unsqueeze(s, second) masked = Add(scores, upper)
            z = Softmax(masked) y = ReduceSum <keepdims = 0> (z, second)""",
            inputs="float[N, L] s",
            weights="int64[1] second = {1}, int64[1] zero = {0}",
        )
    )

    assert proof.independent, proof.reason


def test_a_reason_names_node_operator_and_tensor() -> None:
    model = graph("m = ReduceMean <axes = [0]> (x) y = Sub(x, m)")
    model.graph.node[0].name = "/norm/ReduceMean"

    assert prove_rows(model).reason == (
        "output 'y': node '/norm/ReduceMean' (ReduceMean) averages over axis 0 of 'x', "
        "which holds the rows"
    )


def test_a_malformed_node_is_no_proof_and_no_crash() -> None:
    model = graph("y = Transpose <perm = [7, 8]> (x)")

    proof = prove_rows(model)

    assert not proof.independent
    assert "is not understood" in proof.reason


def test_a_fixed_batch_has_no_row_axis() -> None:
    proof = prove_rows(graph("y = Relu(x)", inputs="float[6, 4] x", outputs="float[6, 4] y"))

    assert not proof.independent
    assert "no input has a row axis" in proof.reason


def test_operator_sets_with_other_broadcasting_are_not_followed() -> None:
    model = graph("y = Relu(x)")
    model.opset_import[0].version = 6

    assert "operator set 6 is older than 7" in prove_rows(model).reason
