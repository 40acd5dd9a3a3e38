"""What may run once per user, what may not, and products that are taken apart for it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx import parser

from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.user_side.known_sizes import KnownSizesPass
from anabranch_graph_opt.user_side.product_splitting import ProductSplittingPass
from anabranch_graph_opt.user_side.splitting import UserSplit, split_users
from anabranch_testing.users_once import run_parts, run_whole

COUNTS = (3, 1, 4)
USERS = len(COUNTS)
INDEX = np.repeat(np.arange(USERS), COUNTS)

Arrays = Mapping[str, NDArray[Any]]


def graph(nodes: str, inputs: str = "float[N, 4] u, float[N, 4] i", weights: str = "") -> Any:
    constants = "int64[1] first = {0}, int64[1] second = {1}, int64 zero = {0}, float none = {0}"
    more = f", {weights}" if weights else ""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> '
        f"g ({inputs}) => (float[N, M] y) <{constants}{more}> {{ {nodes} }}"
    )


def numbers(name: str, *shape: int) -> str:
    values = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
    sizes = ", ".join(map(str, shape))
    return f"float[{sizes}] {name} = {{{', '.join(map(str, values.reshape(-1)))}}}"


def normal(source: Any) -> ir.Model:
    return normalise(open_model(source)).model


def split(model: ir.Model, *, taken_apart: bool = True) -> UserSplit | str:
    users = frozenset(str(v.name) for v in model.graph.inputs if str(v.name).startswith("u"))
    if taken_apart:
        ProductSplittingPass(users)(model)
    return split_users(model, users, frozenset())


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def arrays_of(source: Any) -> tuple[Arrays, Arrays]:
    """Users, and candidates, made up."""
    rng = np.random.default_rng(3)
    by_user: dict[str, NDArray[Any]] = {}
    by_row: dict[str, NDArray[Any]] = {}
    for value in source.graph.input:
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim][1:]
        side, rows = (by_user, USERS) if value.name.startswith("u") else (by_row, len(INDEX))
        side[value.name] = rng.normal(size=(rows, *sizes)).astype(np.float32)
    return by_user, by_row


def assert_same(source: Any, found: UserSplit) -> None:
    by_user, by_row = arrays_of(source)
    whole = {**{name: array[INDEX] for name, array in by_user.items()}, **by_row}
    expected = run_whole(source.SerializeToString(), whole)["y"]

    # Inputs of users that the dense graph takes as they come are gathered by the split itself.
    y = run_parts(found.user, found.dense, by_user, by_row, INDEX)["y"]

    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-5)


UNSOUND = {
    "positions of NonZero": """p = NonZero(u) t = Transpose(p) f = Cast <to = 1> (t)
        h = MatMul(f, w) r = Shape <end = 1> (i) c = Concat <axis = 0> (r, two)
        s = Slice(h, first, r) e = Reshape(s, c) y = Add(e, i)""",
    "a mean over the batch": """m = ReduceMean <axes = [0], keepdims = 1> (u) d = Sub(u, m)
        h = MatMul(d, v) y = Add(h, i)""",
    "a cumulative sum over the batch": """d = CumSum(u, zero) h = MatMul(d, v) y = Add(h, i)""",
    "rows in reverse": """minus = Neg(second) far = Constant <value_ints = [-100]> ()
        d = Slice(u, minus, far, first, minus) h = MatMul(d, v) y = Add(h, i)""",
    "a softmax over the batch": """d = Softmax <axis = 0> (u) h = MatMul(d, v) y = Add(h, i)""",
    "the number of rows": """n = Shape <end = 1> (u) f = Cast <to = 1> (n) d = Div(u, f)
        h = MatMul(d, v) y = Add(h, i)""",
    "the number of rows, repeated": """n = Shape <end = 1> (u) f = Cast <to = 1> (n)
        c = Concat <axis = 0> (n, two) e = Expand(f, c) d = Mul(u, e)
        h = MatMul(d, v) y = Add(h, i)""",
    "rows added to each other": """t = Transpose(u) s = MatMul(u, t) p = ReduceSum(s, second)
        h = Mul(u, p) z = MatMul(h, v) y = Add(z, i)""",
}


@pytest.mark.parametrize("what", UNSOUND)
def test_what_depends_on_other_rows_does_not_run_per_user(what: str) -> None:
    weights = f"{numbers('w', 2, 4)}, {numbers('v', 4, 4)}, int64[1] two = {{4}}"

    found = split(normal(graph(UNSOUND[what], weights=weights)))

    assert isinstance(found, str), operators(found.user)


def test_what_is_before_a_mixture_runs_per_user_and_the_mixture_per_row() -> None:
    source = graph(
        "h = MatMul(u, v) m = ReduceMean <axes = [0], keepdims = 1> (h) d = Sub(h, m) "
        "y = Add(d, i)",
        weights=numbers("v", 4, 4),
    )

    found = split(normal(source))

    assert isinstance(found, UserSplit)
    assert operators(found.user) == ["MatMul"]
    assert "ReduceMean" in operators(found.dense)
    assert_same(source, found)


def test_sizes_are_made_on_both_sides() -> None:
    # The number of users is asked for by both: by the user's own layer, and by the candidates.
    source = graph(
        """n = Shape <end = 1> (u) c = Concat <axis = 0> (n, four) z = Expand(none, c)
        a = Add(u, z) h = MatMul(a, v) e = Expand(half, c) b = Mul(i, e) y = Add(h, b)""",
        weights=f"{numbers('v', 4, 4)}, int64[1] four = {{4}}, float half = {{0.5}}",
    )

    found = split(normal(source))

    assert isinstance(found, UserSplit)
    assert "MatMul" in operators(found.user)
    assert "MatMul" not in operators(found.dense)
    assert [str(value.name) for value in found.dense.graph.inputs] == [
        "i", "ab_once_0", "ab_user_index",
    ]  # fmt: skip
    assert_same(source, found)


def test_a_product_of_user_and_candidate_columns_is_taken_apart() -> None:
    source = graph(
        "c = Concat <axis = 1> (u1, i, u2) g = Gemm <transB = 1> (c, w, b) y = Relu(g)",
        "float[N, 20] u1, float[N, 6] i, float[N, 3] u2",
        f"{numbers('w', 5, 29)}, {numbers('b', 5)}",
    )

    found = split(normal(source))

    assert isinstance(found, UserSplit)
    assert operators(found.user).count("MatMul") == 1
    assert "Concat" not in operators(found.dense)
    assert "w" in found.user.graph.initializers
    assert "w" in found.dense.graph.initializers
    assert_same(source, found)


def test_a_product_behind_stacked_fields_is_taken_apart() -> None:
    source = graph(
        """a = Unsqueeze(u, second) b = Unsqueeze(i, second) s = Concat <axis = 1> (a, v, b)
        f = Flatten(s) g = MatMul(f, w) y = Relu(g)""",
        "float[N, 8] u, float[N, 8] i, float[N, 2, 8] uv",
        numbers("w", 32, 5),
    )
    source.graph.node[2].input[1] = "uv"

    found = split(normal(source))

    assert isinstance(found, UserSplit)
    assert operators(found.user).count("MatMul") == 1
    assert_same(source, found)


ATTENTION = """t = Unsqueeze(i, second) q = {repeated} d = Sub({left}, {right}) p = Mul(q, u)
    c = Concat <axis = 2> (q, u, d, p) {product} s = ReduceMax <axes = [1], keepdims = 0> (h)
    y = Relu(s)"""


@pytest.mark.parametrize("repeated", ["Expand(t, sizes)", "Tile(t, sizes)"])
@pytest.mark.parametrize(("left", "right"), [("q", "u"), ("u", "q")])
@pytest.mark.parametrize(
    "product",
    [
        "a = MatMul(c, w) h = Add(a, b)",
        "f = Reshape(c, flat) a = Gemm(f, w, b) h = Reshape(a, back)",
    ],
)
def test_attention_by_differences_and_products_is_taken_apart(
    repeated: str, left: str, right: str, product: str
) -> None:
    source = graph(
        ATTENTION.format(repeated=repeated, left=left, right=right, product=product),
        "float[N, 3, 8] u, float[N, 8] i",
        f"{numbers('w', 32, 6)}, {numbers('b', 6)}, int64[3] sizes = {{1, 3, 1}}, "
        "int64[2] flat = {-1, 32}, int64[3] back = {-1, 3, 6}",
    )

    found = split(normal(source))

    assert isinstance(found, UserSplit)
    assert operators(found.user).count("MatMul") == 1
    assert "Concat" not in operators(found.dense)
    assert_same(source, found)


@pytest.mark.parametrize(
    "nodes",
    [
        "c = Concat <axis = 1> (u, i) y = Gemm <alpha = 2.0> (c, w, b)",
        "c = Concat <axis = 1> (u, i) y = Gemm(c, w, i2)",
        "k = Concat <axis = 1> (u, i) m = Mul(k, k) y = MatMul(m, w)",
        "c = Concat <axis = 0> (u, u) d = Concat <axis = 0> (i, i) e = Add(c, d) y = MatMul(e, v)",
    ],
)
def test_other_products_stay(nodes: str) -> None:
    model = normal(
        graph(
            nodes,
            "float[N, 20] u, float[N, 20] i, float[N, 5] i2",
            f"{numbers('w', 40, 5)}, {numbers('v', 20, 5)}, {numbers('b', 5)}",
        )
    )
    before = operators(model)

    result = ProductSplittingPass(frozenset({"u"}))(model)

    assert not result.modified
    assert operators(result.model) == before


def test_sizes_of_rows_are_found_behind_a_computed_shape() -> None:
    # (batch, -1): shape inference leaves the columns open.
    source = graph(
        """n = Shape <end = 1> (u) rest = Neg(second) s = Concat <axis = 0> (n, rest)
        a = Reshape(u, s) c = Concat <axis = 1> (a, i) y = MatMul(c, w)""",
        "float[N, 2, 10] u, float[N, 10] i",
        numbers("w", 30, 5),
    )
    model = normal(source)
    assert not ProductSplittingPass(frozenset({"u"}))(model).modified

    assert KnownSizesPass()(model).modified
    found = split(model)

    assert isinstance(found, UserSplit)
    assert operators(found.user).count("MatMul") == 1
    assert_same(source, found)


def test_a_few_columns_are_not_worth_a_product_of_their_own() -> None:
    model = normal(
        graph("c = Concat <axis = 1> (u, i) y = MatMul(c, w)", weights=numbers("w", 8, 5))
    )

    assert not ProductSplittingPass(frozenset({"u"}))(model).modified
