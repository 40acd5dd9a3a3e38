"""Which lookups leave a graph, and what is said of those that stay."""

import re
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.placement.finding import find_lookups
from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.roots import find_roots
from anabranch_testing.optimized_models import cut_all, parsed

TABLE = np.ones((8, 3), np.float32)
INPUTS = "int64[N] id, float[N, 4] x, float[N] score, int64[N, 2] pair, bool yes"


def found(body: str, min_table_bytes: int = 0, inputs: str = INPUTS, **weights: Any) -> FoundLookup:
    """The one lookup of a graph, as far as its operators tell."""
    numbers: Any = {"t": TABLE} | weights
    model = parsed(f"g ({inputs}) => (float[A, B] y) {{ {body} }}", **numbers)
    normal = normalise(ir.from_proto(model)).model
    (lookup,) = find_lookups(normal, min_table_bytes)
    return lookup


@pytest.mark.parametrize(
    "body",
    [
        "y = Gather(t, id)",
        "y = Gather <axis: int = -2> (t, id)",
        "i = Cast <to: int = 7> (score) y = Gather(t, i)",
        "i = Mod(id, eight) y = Gather(t, i)",
        "i = Gather(kinds, id) y = Gather(t, i)",
        "i = Unsqueeze(id, last) y = GatherND(t, i)",
        """i = If (yes) < then_branch = a () => (int64[N] p) { p = Identity(id) },
            else_branch = b () => (int64[N] q) { q = Add(id, eight) } > y = Gather(t, i)""",
    ],
)
def test_rows_by_ids_of_a_caller_leave(body: str) -> None:
    lookup = found(
        body, eight=np.array(8), kinds=np.zeros(9, np.int64), last=np.array([-1], np.int64)
    )

    assert (lookup.is_cut, lookup.reason, lookup.table.name) == (True, "", "t")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "z = Softmax(x) i = ArgMax <axis: int = 1, keepdims: int = 0> (z) y = Gather(t, i)",
            r"computed by a node Softmax, which is no arithmetic of ids",
        ),
        (
            "s = Shape(id) n = Squeeze(s) i = Range(zero, n, one) y = Gather(t, i)",
            "depend on the shape of inputs only: a table of positions",
        ),
        ("i = Gather(t, three) a = Gather(t, id) y = Add(i, a)", "ids are constant"),
        (
            "f = Gather(side, id) i = Cast <to: int = 7> (f) y = Gather(t, i)",
            r"come out of another float table \('side'\)",
        ),
        (
            """y = If (yes) < then_branch = a () => (float[N, 3] p) { p = Gather(t, id) },
                else_branch = b () => (float[N, 3] q) { q = Slice(x, none, three, one1) } >""",
            r"inside the body of a node If",
        ),
        ("i = Cast <to: int = 6> (score) y = GatherElements(t, i)", "single elements"),
    ],
)
def test_what_stays_has_a_reason_of_its_own(body: str, words: str) -> None:
    model = parsed(
        f"g ({INPUTS}) => (float[A, B] y) {{ {body} }}",
        t=TABLE,
        side=np.ones((8, 1), np.float32),
        zero=np.array(0),
        one=np.array(1),
        three=np.array([3]),
        none=np.array([0]),
        one1=np.array([1]),
    )

    lookups = find_lookups(normalise(ir.from_proto(model)).model, 0)

    assert any(re.search(words, each.reason) for each in lookups)
    assert sum(not each.is_cut for each in lookups) == 1


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (np.ones((8, 3), np.float64), "its table holds float64"),
        (np.ones((2, 1025), np.float32), "its rows have 1025 numbers"),
    ],
)
def test_tables_that_the_store_cannot_hold_stay(table: np.ndarray[Any, Any], words: str) -> None:
    assert words in found("y = Gather(t, id)", t=table).reason


def test_small_tables_stay() -> None:
    assert found("y = Gather(t, id)", 97).reason == (
        "its table has 96 bytes, less than min_table_bytes (97)"
    )
    assert found("y = Gather(t, id)", 96).is_cut


@pytest.mark.parametrize(
    "table",
    [
        np.ones((1, 3), np.float32),
        np.ones((8, 0), np.float32),
        np.ones((8, 3), np.int32),
        np.ones((8, 3, 2), np.float32),
    ],
)
def test_constants_that_are_no_tables_are_not_listed(table: np.ndarray[Any, Any]) -> None:
    kind = "int32" if table.dtype == np.int32 else "float"
    model = parsed(f"g (int64[N] id) => ({kind}[N, A] y) {{ y = Gather(t, id) }}", t=table)

    assert find_lookups(normalise(ir.from_proto(model)).model, 0) == ()


def test_shapes_of_what_layers_compute_are_shapes_all_the_same() -> None:
    model = parsed(
        """g (float[N, 4] x) => (float[M, 3] y)
        { z = Softmax(x) s = Shape(z) n = Gather(s, zero) i = Range(zero, n, one)
          y = Gather(t, i) }""",
        t=TABLE,
        zero=np.array(0),
        one=np.array(1),
    )
    (lookup,) = find_lookups(normalise(ir.from_proto(model)).model, 0)

    assert "table of positions" in lookup.reason


def test_roots_of_loops_are_what_enters_them() -> None:
    model = parsed(
        """g (int64[N] id, int64 n) => (int64[N] y)
        <bool yes = {1}>
        { y = Loop <body = b (int64 i, bool c, int64[N] v) => (bool d, int64[N] w)
            { d = Identity(c) w = Add(v, one) }> (n, yes, id) }""",
        one=np.array(1),
    )
    graph = normalise(ir.from_proto(model)).model.graph

    roots = find_roots(graph)[graph.outputs[0]]

    assert roots.by_value
    assert roots.foreign is None


def test_a_verdict_names_node_table_and_ids() -> None:
    model = parsed(
        """g (float[N, 4] x) => (float[N, 1, 3] y)
        <int64[1] begin = {2}, int64[1] end = {3}, int64[1] axis = {1}>
        { c = Slice(x, begin, end, axis) i = Cast <to: int = 7> (c) y = Gather(t, i) }""",
        t=TABLE,
    )

    (verdict,) = cut_all(model).verdicts

    assert (verdict.node, verdict.table, verdict.rows, verdict.dim) == ("y", "t", 8, 3)
    assert verdict.ids == "x[2:3]"
