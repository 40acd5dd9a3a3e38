"""Counting multiplications, and what is the most that a user side can save."""

import onnx_ir as ir
import pytest
from onnx import parser

from anabranch_graph_opt.user_side.mac_counts import UserGain, count_macs


def graph(nodes: str, inputs: str, weights: str = "") -> ir.Model:
    source = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> '
        f"g ({inputs}) => (float[N, M] y) <{weights}> {{ {nodes} }}"
    )
    return ir.serde.deserialize_model(source)


def zeros(name: str, *shape: int) -> str:
    count = 1
    for size in shape:
        count *= size
    return f"float[{', '.join(map(str, shape))}] {name} = {{{', '.join('0' * count)}}}"


@pytest.mark.parametrize(
    ("nodes", "inputs", "weights", "macs"),
    [
        ("y = MatMul(x, w)", "float[N, 4] x", zeros("w", 4, 3), 10 * 4 * 3),
        ("y = MatMul(x, w)", "float[N, 5, 4] x", zeros("w", 4, 3), 10 * 5 * 4 * 3),
        ("y = Gemm <transB = 1> (x, w)", "float[N, 4] x", zeros("w", 3, 4), 10 * 4 * 3),
        (
            "a, y = GRU <hidden_size = 2> (x, w, r)",
            "float[7, N, 4] x",
            f"{zeros('w', 1, 6, 4)}, {zeros('r', 1, 6, 2)}",
            7 * 10 * 3 * 2 * (4 + 2),
        ),
        ('y = Einsum <equation = "nd,ne->nde"> (x, z)', "float[N, 4] x, float[N, 3] z", "", 120),
        ("y = Conv(x, w)", "float[N, 2, 6] x", zeros("w", 3, 2, 3), 10 * 3 * 4 * 2 * 3),
        ("y = Relu(x)", "float[N, 4] x", "", 0),
    ],
)
def test_multiplications_are_counted(nodes: str, inputs: str, weights: str, macs: int) -> None:
    assert count_macs(graph(nodes, inputs, weights), 10) == macs


def test_the_bound_is_what_remains() -> None:
    gain = UserGain(whole=1000, user=50, dense=200)

    assert gain.share == pytest.approx(0.75)
    assert gain.bound == pytest.approx(4.0)


def test_without_multiplications_nothing_is_bound() -> None:
    assert UserGain(whole=0, user=0, dense=0).bound == 1.0
