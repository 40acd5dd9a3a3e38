"""Loops over rows, as exporters write embedding bags: each turn may look at its own row only."""

import numpy as np
import onnx
import pytest
from onnx import parser

from anabranch_graph_opt.row_check import check_rows
from anabranch_graph_opt.row_flow import RowProof, prove_rows
from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_runner import OrtModelRunner

WEIGHTS = """
    bool go = {1}, int64 zero = {0}, int64 one = {1}, int64 four = {4}, int64 five = {5},
    int64[1] flat = {-1}, int64[1] first = {0}, int64[1] second = {1},
    int64[1] far = {9223372036854775807}, float[1, 1] nothing = {0.0}
"""

STARTS = """
    n = Shape <end = 1> (x) rows = Squeeze(n) total = Mul(rows, four) all = Unsqueeze(total, first)
    steps = Range(zero, total, four) bounds = Concat <axis = 0> (steps, all)
    values = Reshape(x, flat)
"""
"""N bags of four values each: `bounds` [N + 1] holds their starts and the end of the last."""


def graph(nodes: str) -> onnx.ModelProto:
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        f"g (float[N, 4] x) => (float[N, M] y) <{WEIGHTS}> {{ {nodes} }}"
    )


def torchscript_bag(start: str, end: str, turns: str = "rows") -> onnx.ModelProto:
    """A loop that counts its turns itself; `start` and `end` compute the bounds of bag i."""
    return graph(
        f"""{STARTS}
        ends = Slice(bounds, second, far, first)
        y = Loop ({turns}, go) <body = b (int64 i, bool c) => (bool d, float[M] pooled)
            {{ d = Identity(c) {start} {end} a = Unsqueeze(s, first) b = Unsqueeze(e, first)
               bag = Slice(values, a, b, first) pooled = ReduceSum(bag, first) }}>"""
    )


def dynamo_bag(
    following: str = "Add(index, one)",
    goes_on: str = "Less(next, rows)",
    place: str = "",
    first: str = "zero",
) -> onnx.ModelProto:
    """A loop that counts in a carried value and collects bags in a sequence."""
    return graph(
        f"""{STARTS}
        empty = SequenceEmpty()
        start = Less({first}, rows)
        list, count = Loop (, start, empty, {first}) <body = b
            (int64 turn, bool c, seq(float[1, 1]) before, int64 index) =>
            (bool d, seq(float[1, 1]) after, int64 next)
            {{ next = {following} d = {goes_on}
               a = Unsqueeze(index, first) e = Add(a, second) f = Add(e, second)
               s = Slice(bounds, a, e) t = Slice(bounds, e, f)
               none = Equal(s, t)
               bag = If (none) <then_branch = n () => (float[1, 1] p) {{ p = Identity(nothing) }},
                   else_branch = m () => (float[1, 1] q)
                   {{ part = Slice(values, s, t) sum = ReduceSum(part, first)
                      q = Unsqueeze(sum, first) }}>
               after = SequenceInsert(before, bag{place}) }}>
        y = ConcatFromSequence <axis = 0> (list)"""
    )


def agrees_when_run(model: onnx.ModelProto, proof: RowProof) -> bool:
    content = model.SerializeToString()
    rng = np.random.default_rng(2)
    cases = [{"x": rng.random((rows, 4)).astype(np.float32)} for rows in (4, 7)]
    return check_rows(OrtModelRunner(), content, read_signature(model), proof, cases).ok


def claimed() -> RowProof:
    return RowProof(True, 1, {"x": 0}, {"y": 0}, "", paddable=True, splittable=True)


@pytest.mark.parametrize(
    "model",
    [
        torchscript_bag("s = Gather(bounds, i)", "e = Gather(ends, i)"),
        torchscript_bag("s = Gather(steps, i)", "e = Add(s, four)"),
        torchscript_bag("s = Mul(i, four)", "j = Add(i, one) e = Mul(j, four)"),
        dynamo_bag(),
    ],
    ids=["both bounds", "start and width", "computed", "collected"],
)
def test_bags_that_look_at_their_own_row_are_proven(model: onnx.ModelProto) -> None:
    proof = prove_rows(model)

    assert proof.independent, proof.reason
    assert agrees_when_run(model, proof)


@pytest.mark.parametrize(
    "model",
    [
        torchscript_bag("s = Gather(bounds, zero)", "e = Gather(ends, i)"),
        torchscript_bag("s = Gather(bounds, i)", "e = Add(s, five)"),
        torchscript_bag("s = Sub(i, one)", "e = Mul(i, four)"),
        torchscript_bag("s = Mul(i, five)", "e = Add(s, five)"),
        torchscript_bag("l = Sub(rows, one) k = Sub(l, i) s = Mul(k, four)", "e = Add(s, four)"),
    ],
    ids=["from the first row on", "one value too many", "askew", "other width", "from the end"],
)
def test_bags_that_look_at_other_rows_stay_unproven(model: onnx.ModelProto) -> None:
    proof = prove_rows(model)

    assert not proof.independent
    assert not agrees_when_run(model, claimed())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (dynamo_bag(place=", zero"), "inserts at a given place inside a loop"),
        (dynamo_bag(goes_on="Less(next, four)"), "may stop before it has seen all rows"),
        (dynamo_bag(goes_on="Less(index, rows)"), "may stop before it has seen all rows"),
        (dynamo_bag(following="Add(index, four)"), "does not count its turns one by one"),
        (dynamo_bag(first="one"), "the number of rows"),
    ],
    ids=["in reverse", "four rows only", "a turn too many", "every fourth row", "from row 1 on"],
)
def test_loops_that_do_not_take_the_rows_one_by_one_stay_unproven(
    model: onnx.ModelProto, reason: str
) -> None:
    proof = prove_rows(model)

    assert not proof.independent
    assert reason in proof.reason


def test_a_loop_of_another_number_of_turns_stays_unproven() -> None:
    model = torchscript_bag("s = Gather(bounds, zero)", "e = Gather(ends, zero)", turns="total")

    assert not prove_rows(model).independent


def test_what_a_loop_collected_before_is_not_read() -> None:
    model = graph(
        f"""{STARTS}
        empty = SequenceEmpty()
        start = SequenceInsert(empty, x)
        go2 = Less(zero, rows)
        list, count = Loop (, go2, empty, zero) <body = b
            (int64 turn, bool c, seq(float[4]) before, int64 index) =>
            (bool d, seq(float[4]) after, int64 next)
            {{ next = Add(index, one) d = Less(next, rows)
               own = Gather(x, index) grown = SequenceInsert(before, own)
               oldest = SequenceAt(grown, zero) mixed = Add(own, oldest)
               after = SequenceInsert(before, mixed) }}>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (list)"""
    )

    proof = prove_rows(model)

    assert not proof.independent
    assert "reads what it collected from other rows" in proof.reason
    assert not agrees_when_run(model, claimed())
