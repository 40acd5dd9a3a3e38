"""Which axis carries rows: by custom, by declaration, and where that is not clear."""

import onnx
import pytest
from onnx import parser

from anabranch_graph_opt.row_axes import AxisKind, InputAxis, resolve_row_axes
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.signature import read_signature
from anabranch_wire.errors import InvalidInput


def model(inputs: str, nodes: str = "y = Relu(x)") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float[N, 4] y) {{ {nodes} }}'
    )


def kinds(inputs: str, declared: dict[str, InputAxis] | None = None) -> dict[str, str]:
    resolved = resolve_row_axes(read_signature(model(inputs)), declared)
    return {name: axis.kind for name, axis in resolved.kinds.items()}


def test_a_symbolic_axis_0_counts_rows_and_a_fixed_one_does_not() -> None:
    assert kinds("float[N, 4] x, float[1, 4] u, float s") == {"x": "rows", "u": "none", "s": "none"}


def test_axes_of_different_names_stay_unproven_with_the_remedy() -> None:
    proof = prove_rows(model("float[N, 4] x, int64[M] ids, int64[N] b"))

    assert not proof.independent
    assert "axis 0 of input 'ids' is 'M' but 'N' in other inputs" in proof.reason
    assert "inputs: {ids: {axis: rows}}" in proof.reason


def test_a_declaration_settles_it() -> None:
    axes = {"ids": InputAxis("rows")}

    assert prove_rows(model("float[N, 4] x, int64[M] ids, int64[N] b"), axes).independent


def test_an_input_declared_the_same_for_every_request_has_no_row_axis() -> None:
    proof = prove_rows(
        model("float[N, 4] x, float[P, 4] pos", "s = ReduceSum <keepdims = 0> (pos) y = Add(x, s)"),
        {"pos": InputAxis("none")},
    )

    assert proof.independent
    assert proof.input_axes == {"x": 0, "pos": None}


def test_an_input_that_is_the_same_for_every_request_does_not_meet_rows() -> None:
    proof = prove_rows(
        model("float[N, 4] x, float[N, 4] pos", "y = Add(x, pos)"), {"pos": InputAxis("none")}
    )

    assert not proof.independent


def test_bags_are_not_proven() -> None:
    proof = prove_rows(
        model("float[N, 4] x, int64[M] ids, int64[N] starts"),
        {"ids": InputAxis("ids", bag="starts"), "starts": InputAxis("bag")},
    )

    assert not proof.independent
    assert "input 'ids' belongs to bags" in proof.reason


def test_an_inner_axis_of_the_size_of_the_batch_is_not_proven() -> None:
    proof = prove_rows(model("float[N, N] x", "y = Softmax(x)"))

    assert not proof.independent
    assert "axis 1 of input 'x' has size 'N': it grows with the rows" in proof.reason


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"z": InputAxis("rows")}, "'z' is no input"),
        ({"x": InputAxis("ids", bag="z")}, "'z' as its bag"),
        ({"u": InputAxis("rows")}, r"fixes its shape to \[1, 4\]"),
        ({"s": InputAxis("rows")}, r"fixes its shape to \[\]"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(
    declared: dict[str, InputAxis], complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        kinds("float[N, 4] x, float[1, 4] u, float s", declared)


@pytest.mark.parametrize(("kind", "bag"), [("ids", None), ("rows", "offsets")])
def test_ids_and_only_ids_have_a_bag(kind: AxisKind, bag: str | None) -> None:
    with pytest.raises(InvalidInput, match="bag"):
        InputAxis(kind, bag)
