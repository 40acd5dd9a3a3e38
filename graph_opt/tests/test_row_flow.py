"""Small models in pairs: in one rows interact in some subtle way, its twin looks alike.

The first must stay unproven and the second be proven, and ONNX Runtime is asked about both: rows
run alone and together differ in the first and agree in the second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from anabranch_graph_opt.row_check import check_rows
from anabranch_graph_opt.row_flow import RowProof, prove_rows
from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_runner import OrtModelRunner

X = "float[N, 4] x"
Y = "float[N, M] y"


def graph(
    nodes: str,
    inputs: str = X,
    outputs: str = Y,
    weights: str = "",
    opset: int = 17,
    extra: str = "",
) -> onnx.ModelProto:
    weights = f"<{weights}>" if weights else ""
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}{extra}]> '
        f"g ({inputs}) => ({outputs}) {weights} {{ {nodes} }}"
    )


@dataclass(frozen=True)
class Pair:
    """A mixing model and its harmless twin, as arguments of `graph`.

    `shown` is False where running the first cannot show it (random, custom or failing operators).
    """

    name: str
    mixing: tuple[str, Mapping[str, Any]]
    harmless: tuple[str, Mapping[str, Any]]
    reason: str
    shown: bool = True


def pair(
    name: str,
    mixing: str,
    harmless: str,
    reason: str,
    shown: bool = True,
    mixing_only: Mapping[str, Any] = MappingProxyType({}),
    harmless_only: Mapping[str, Any] = MappingProxyType({}),
    **both: object,
) -> Pair:
    return Pair(
        name,
        (mixing, {**both, **mixing_only}),
        (harmless, {**both, **harmless_only}),
        reason,
        shown,
    )


AXES = "int64[1] rows = {0}, int64[1] cols = {1}, int64[1] last = {-1}"

PAIRS = [
    pair(
        "mean",
        "m = ReduceMean <axes = [0]> (x) y = Sub(x, m)",
        "m = ReduceMean <axes = [1]> (x) y = Sub(x, m)",
        "averages over axis 0 of 'x'",
    ),
    pair(
        "maximum of everything",
        "m = ReduceMax (x) y = Sub(x, m)",
        "m = ReduceMax <axes = [-1]> (x) y = Sub(x, m)",
        "takes the maximum over axis 0",
    ),
    pair(
        "norm",
        "m = ReduceL2 <axes = [-2]> (x) y = Div(x, m)",
        "m = ReduceL2 <axes = [-1]> (x) y = Div(x, m)",
        "axis 0",
    ),
    pair("softmax", "y = Softmax <axis = 0> (x)", "y = Softmax (x)", "normalises along axis 0"),
    pair(
        "softmax before version 13 takes all axes from one on",
        "y = Softmax <axis = 0> (x)",
        "y = Softmax <axis = 1> (x)",
        "normalises along axis 0",
        opset=11,
    ),
    pair(
        "softmax after a transposition",
        "t = Transpose(x) s = Softmax <axis = -1> (t) y = Transpose(s)",
        "t = Transpose(x) s = Softmax <axis = 0> (t) y = Transpose(s)",
        "normalises along axis 1 of 't'",
    ),
    pair(
        "batch normalisation in training mode",
        "y, m, v = BatchNormalization <training_mode = 1> (x, s, b, mean, var)",
        "y = BatchNormalization (x, s, b, mean, var)",
        "training mode",
        weights="float[4] s = {1,2,3,4}, float[4] b = {0,1,0,1}, float[4] mean = {0,0,1,1}, "
        "float[4] var = {1,1,2,2}",
    ),
    pair(
        "instance normalisation with rows as channels",
        "a = Unsqueeze(x, rows) n = InstanceNormalization (a, s, b) y = Squeeze(n, rows)",
        "a = Unsqueeze(x, last) n = InstanceNormalization (a, t, c) y = Squeeze(n, last)",
        "axis 1",
        shown=False,
        weights=AXES + ", float[3] s = {1,2,3}, float[3] b = {0,1,0}, float[4] t = {1,2,3,4}, "
        "float[4] c = {0,1,0,2}",
    ),
    pair(
        "layer normalisation",
        "y = LayerNormalization <axis = 0> (x, s)",
        "y = LayerNormalization <axis = 1> (x, s)",
        "axis 0",
        mixing_only={"weights": "float[1, 4] s = {1,2,3,4}"},
        harmless_only={"weights": "float[4] s = {1,2,3,4}"},
    ),
    pair(
        "mean and variance over the default axes",
        "a = Unsqueeze(x, ends) m = MeanVarianceNormalization (a) y = Squeeze(m, ends)",
        "a = Unsqueeze(x, ends) m = MeanVarianceNormalization <axes = [1]> (a) "
        "y = Squeeze(m, ends)",
        "axis 0",
        weights="int64[2] ends = {2, 3}",
    ),
    pair(
        "running sum",
        "y = CumSum(x, rows)",
        "y = CumSum(x, cols)",
        "adds up along axis 0",
        weights=AXES,
    ),
    pair(
        "position in the batch, made from ones",
        "n = Shape(x) o = ConstantOfShape <value = float[1] {1.0}> (n) p = CumSum(o, rows) "
        "y = Add(x, p)",
        "n = Shape(x) o = ConstantOfShape <value = float[1] {1.0}> (n) p = CumSum(o, cols) "
        "y = Add(x, p)",
        "adds up along axis 0",
        weights=AXES,
    ),
    pair(
        "position in the batch, counted",
        "n = Shape <end = 1> (x) s = Squeeze(n) r = Range(zero, s, one) f = Cast <to = 1> (r) "
        "p = Unsqueeze(f, cols) y = Add(x, p)",
        "n = Shape <start = 1> (x) s = Squeeze(n) r = Range(zero, s, one) f = Cast <to = 1> (r) "
        "p = Unsqueeze(f, rows) y = Add(x, p)",
        "positions in the batch",
        weights=AXES + ", int64 zero = {0}, int64 one = {1}",
    ),
    pair(
        "every other row",
        "n = Shape <end = 1> (x) s = Squeeze(n) r = Range(zero, s, one) e = Mod(r, two) "
        "f = Cast <to = 1> (e) p = Unsqueeze(f, cols) y = Mul(x, p)",
        "n = Shape <start = 1> (x) s = Squeeze(n) r = Range(zero, s, one) e = Mod(r, two) "
        "f = Cast <to = 1> (e) p = Unsqueeze(f, rows) y = Mul(x, p)",
        "positions in the batch",
        weights=AXES + ", int64 zero = {0}, int64 one = {1}, int64 two = {2}",
    ),
    pair(
        "divided by the number of rows",
        "n = Shape <end = 1> (x) f = Cast <to = 1> (n) y = Div(x, f)",
        "n = Shape <start = 1> (x) f = Cast <to = 1> (n) y = Div(x, f)",
        "the number of rows",
    ),
    pair(
        "divided by the number of elements",
        "n = Size(x) f = Cast <to = 1> (n) y = Div(x, f)",
        "a = ReduceSum(x, cols) n = Size(cols) f = Cast <to = 1> (n) y = Div(a, f)",
        "the number of rows",
        weights=AXES,
    ),
    pair(
        "largest rows",
        "v, y = TopK <axis = 0> (x, k)",
        "v, y = TopK <axis = 1> (x, k)",
        "holds the rows",
        outputs="int64[K, M] y",
        weights="int64[1] k = {1}",
    ),
    pair(
        "attention across the batch",
        "t = Transpose(x) s = MatMul(x, t) p = Softmax(s) y = MatMul(p, x)",
        "a = Reshape(x, grid) t = Transpose <perm = [0, 2, 1]> (a) s = MatMul(a, t) "
        "p = Softmax(s) b = MatMul(p, a) y = Flatten(b)",
        "pairs rows with rows",
        weights="int64[3] grid = {0, 2, 2}",
    ),
    pair(
        "heads split from the batch axis",
        "a = Reshape(x, pairs) s = Softmax <axis = 1> (a) y = Reshape(s, wide)",
        "a = Reshape(x, heads) s = Softmax <axis = 1> (a) y = Reshape(s, wide)",
        "normalises along axis 1 of 'a', which holds the rows",
        weights="int64[3] pairs = {1, -1, 4}, int64[2] wide = {-1, 4}, int64[3] heads = {-1, 2, 2}",
    ),
    pair(
        "two rows folded into one",
        "a = Reshape(x, eight) s = Softmax(a) y = Reshape(s, four)",
        "a = Reshape(x, two) s = Softmax(a) y = Reshape(s, four)",
        "cuts through rows",
        shown=False,
        weights="int64[2] eight = {-1, 8}, int64[2] four = {-1, 4}, int64[2] two = {-1, 2}",
    ),
    pair(
        "a size of the batch baked in",
        "a = Reshape(x, six) s = Softmax(a) y = Reshape(s, wide)",
        "n = Shape <end = 1> (x) w = Concat <axis = 0> (n, last) a = Reshape(x, w) s = Softmax(a) "
        "y = Reshape(s, wide)",
        "cuts through rows",
        shown=False,
        weights=AXES + ", int64[2] six = {6, -1}, int64[2] wide = {-1, 4}",
    ),
    pair(
        "columns become rows by a reshape where a transposition was meant",
        "t = Reshape(x, turned) s = Softmax <axis = 0> (t) y = Reshape(s, wide)",
        "t = Transpose(x) s = Softmax <axis = 0> (t) y = Transpose(s)",
        "cuts through rows",
        weights="int64[2] turned = {4, -1}, int64[2] wide = {-1, 4}",
    ),
    pair(
        "flattened in front of the rows",
        "a = Flatten <axis = 0> (x) s = Softmax(a) y = Reshape(s, wide)",
        "a = Flatten <axis = 1> (x) s = Softmax(a) y = Reshape(s, wide)",
        "normalises along axis 1",
        weights="int64[2] wide = {-1, 4}",
    ),
    pair(
        "a constant with a batch axis",
        "y = Add(x, c)",
        "y = Add(x, c)",
        "broadcasts an axis of N and one of 6|broadcasts an axis of 6 and one of N",
        shown=False,
        mixing_only={"weights": "float[6, 1] c = {1,2,3,4,5,6}"},
        harmless_only={"weights": "float[1, 4] c = {1,2,3,4}"},
    ),
    pair(
        "every row meets every row",
        "a = ReduceSum(x, cols) b = Transpose(a) d = Sub(a, b) y = ReduceSum(d, cols)",
        "a = Unsqueeze(x, cols) b = Transpose <perm = [0, 2, 1]> (a) d = Sub(a, b) "
        "y = ReduceSum <keepdims = 0> (d, cols)",
        "pairs rows with rows",
        weights=AXES,
    ),
    pair(
        "a vector of rows beside a column of rows",
        "v = Squeeze(k, cols) m = Add(k, v) y = ReduceSum(m, cols)",
        "v = Squeeze(k, cols) u = Unsqueeze(v, cols) m = Add(k, u) y = ReduceSum(m, cols)",
        "pairs rows with rows",
        inputs="float[N, 1] k",
        weights=AXES,
    ),
    pair(
        "the first row for all",
        "f = Gather <axis = 0> (x, rows) y = Sub(x, f)",
        "f = Gather <axis = 1> (x, rows) y = Sub(x, f)",
        "holds the rows",
        weights=AXES,
    ),
    pair(
        "the last row for all",
        "f = Slice(x, last, end, rows) y = Sub(x, f)",
        "f = Slice(x, last, end, cols) y = Sub(x, f)",
        "which holds the rows",
        weights=AXES + ", int64[1] end = {9223372036854775807}",
    ),
    pair(
        "rows in reverse",
        "y = Slice(x, last, end, rows, last)",
        "y = Slice(x, last, end, cols, last)",
        "which holds the rows",
        weights=AXES + ", int64[1] end = {-9223372036854775807}",
    ),
    pair(
        "rows by number, counted down",
        "n = Shape <end = 1> (x) s = Squeeze(n) r = Range(zero, s, one) t = Sub(s, one) "
        "i = Sub(t, r) y = Gather(x, i)",
        "n = Shape <end = 1> (x) s = Squeeze(n) r = Range(zero, s, one) y = Gather(x, r)",
        "the number of rows",
        weights="int64 zero = {0}, int64 one = {1}",
    ),
    pair(
        "rows named by data",
        "i = ArgMax <axis = 1, keepdims = 0> (x) y = Gather(x, i)",
        "i = ArgMax <axis = 1, keepdims = 0> (x) y = Gather(t, i)",
        "holds the rows",
        weights="float[4, 2] t = {1,2,3,4,5,6,7,8}",
        shown=False,
    ),
    pair(
        "the last valid item, from the wrong axis",
        "l = ArgMax <axis = 0> (x) y = GatherElements <axis = 0> (x, l)",
        "l = ArgMax <axis = 1> (x) y = GatherElements <axis = 1> (x, l)",
        "axis 0",
        shown=False,
    ),
    pair(
        "items by coordinates",
        "i = ArgMax <axis = 1> (x) y = GatherND <batch_dims = 0> (x, i)",
        "i = ArgMax <axis = 1> (x) z = GatherND <batch_dims = 1> (x, i) y = Unsqueeze(z, cols)",
        "holds the rows",
        shown=False,
        weights=AXES,
    ),
    pair(
        "the own item by position and data",
        "n = Shape <end = 1> (x) s = Squeeze(n) r = Range(zero, s, one) p = Unsqueeze(r, cols) "
        "i = ArgMax <axis = 1> (x) c = Concat <axis = 1> (i, p) t = Transpose(x) "
        "z = Neg(x) w = Gather <axis = 0> (z, i) q = ReduceSum(w, two) y = Squeeze(q, two)",
        "n = Shape <end = 1> (x) s = Squeeze(n) r = Range(zero, s, one) p = Unsqueeze(r, cols) "
        "i = ArgMax <axis = 1> (x) c = Concat <axis = 1> (p, i) z = GatherND(x, c) "
        "y = Unsqueeze(z, cols)",
        "holds the rows",
        shown=False,
        weights=AXES + ", int64 zero = {0}, int64 one = {1}, int64[1] two = {2}",
    ),
    pair(
        "padded rows",
        "p = Pad(x, top) y = Slice(p, rows, last, rows)",
        "p = Pad(x, left) y = Slice(p, rows, last, cols)",
        "pads axis 0",
        weights=AXES + ", int64[4] top = {1, 0, 0, 0}, int64[4] left = {0, 1, 0, 0}",
    ),
    pair(
        "neighbours subtracted",
        "p = Pad(x, top) a = Slice(p, rows, last, rows) y = Sub(x, a)",
        "p = Pad(x, left) a = Slice(p, rows, last, cols) y = Sub(x, a)",
        "pads axis 0",
        weights=AXES + ", int64[4] top = {1, 0, 0, 0}, int64[4] left = {0, 1, 0, 0}",
    ),
    pair(
        "put below each other",
        "z = Neg(x) c = Concat <axis = 0> (x, z) s = Softmax(c) y = ReduceSum(s, rows)",
        "z = Neg(x) c = Concat <axis = 1> (x, z) y = Softmax(c)",
        "concatenates along axis 0",
        weights=AXES,
    ),
    pair(
        "tiled rows",
        "y = Tile(x, down)",
        "y = Tile(x, across)",
        "several entries for each row",
        shown=False,
        weights="int64[2] down = {2, 1}, int64[2] across = {1, 2}",
    ),
    pair(
        "scales of the whole batch",
        "q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z)",
        "q = QuantizeLinear(x, scale, zero) y = DequantizeLinear(q, scale, zero)",
        "takes its scale from the whole batch",
        weights="float scale = {0.02}, uint8 zero = {7}",
    ),
    pair(
        "one scale for each row of one batch",
        "q = QuantizeLinear <axis = 0> (x, s, z) y = DequantizeLinear <axis = 0> (q, s, z)",
        "q = QuantizeLinear <axis = 1> (x, s, z) y = DequantizeLinear <axis = 1> (q, s, z)",
        "one scale for each entry of axis 0",
        shown=False,
        weights="float[4] s = {0.1, 0.2, 0.3, 0.4}, uint8[4] z = {1, 2, 3, 4}",
    ),
    pair(
        "a mask of the whole batch",
        "p = Greater(x, h) f = Cast <to = 1> (p) a = ReduceMax <axes = [0, 1]> (f) y = Mul(x, a)",
        "p = Greater(x, h) f = Cast <to = 1> (p) a = ReduceMax <axes = [1]> (f) y = Mul(x, a)",
        "takes the maximum over axis 0",
        weights="float h = {0.9}",
    ),
    pair(
        "cut to the longest of the batch",
        "m = ReduceMax(len) r = Range(zero, m, one) c = Cast <to = 1> (r) s = ReduceSum(c) "
        "y = Add(x, s)",
        "m = Shape <start = 1> (x) q = Squeeze(m) r = Range(zero, q, one) k = Less(r, len) "
        "c = Cast <to = 1> (k) y = Mul(x, c)",
        "takes the maximum over axis 0",
        inputs="float[N, 4] x, int64[N, 1] len",
        weights="int64 zero = {0}, int64 one = {1}",
    ),
    pair(
        "columns up to the longest of the batch",
        "m = ReduceMax <keepdims = 0> (len) e = Unsqueeze(m, rows) y = Slice(x, rows, e, cols)",
        "y = Slice(x, rows, two, cols)",
        "takes the maximum over axis 0",
        inputs="float[N, 4] x, int64[N] len",
        weights=AXES + ", int64[1] two = {2}",
        shown=False,
    ),
    pair(
        "products of rows, by labels",
        "y = Einsum <equation = 'bi,ci->bc'> (x, x)".replace("'", '"'),
        "y = Einsum <equation = 'bi,bj->bij'> (x, x)".replace("'", '"'),
        "pairs rows with rows",
        mixing_only={"outputs": Y},
        harmless_only={"outputs": "float[N, 4, 4] y"},
        shown=False,
    ),
    pair(
        "a covariance, by labels",
        "c = Einsum <equation = 'bi,bj->ij'> (x, x) y = MatMul(x, c)".replace("'", '"'),
        "c = Einsum <equation = 'bi,bi->b'> (x, x) u = Unsqueeze(c, cols) y = Mul(x, u)".replace(
            "'", '"'
        ),
        "sums over the rows",
        weights=AXES,
    ),
    pair(
        "an ellipsis that holds the rows",
        "y = Einsum <equation = '...i,...i->i'> (x, x)".replace("'", '"'),
        "y = Einsum <equation = '...i,...i->...'> (x, x)".replace("'", '"'),
        "",
        mixing_only={"outputs": "float[M] y"},
        harmless_only={"outputs": "float[N] y"},
        shown=False,
    ),
    pair(
        "a transposed factor",
        "c = Gemm <transA = 1> (x, x) y = MatMul(x, c)",
        "y = Gemm <transB = 1> (x, w, b)",
        "sums over the rows",
        weights="float[2, 4] w = {1,2,3,4,5,6,7,8}, float[2] b = {1, 2}",
    ),
    pair(
        "a vector of rows times a matrix of rows",
        "v = ReduceSum <keepdims = 0> (x, cols) m = MatMul(v, x) y = Add(x, m)",
        "u = Unsqueeze(x, cols) v = Unsqueeze(x, last) m = MatMul(u, v) y = Squeeze(m, cols)",
        "sums over the rows",
        weights=AXES,
    ),
    pair(
        "rows as the steps of a recurrent layer",
        "a = Unsqueeze(x, cols) h, l = GRU <hidden_size = 2> (a, w, r) y = Squeeze(h, two)",
        "a = Unsqueeze(x, rows) h, l = GRU <hidden_size = 2> (a, w, r) y = Squeeze(l, rows)",
        "holds the rows",
        weights=AXES + ", int64[2] two = {1, 2}, "
        f"float[1, 6, 4] w = {{{', '.join(f'{(i % 7) / 7:.2f}' for i in range(24))}}}, "
        f"float[1, 6, 2] r = {{{', '.join(f'{(i % 5) / 5:.2f}' for i in range(12))}}}",
    ),
    pair(
        "rows as channels of a convolution",
        "a = Unsqueeze(x, rows) c = Conv <pads = [1, 1]> (a, w) y = Squeeze(c, rows)",
        "a = Unsqueeze(x, cols) c = Conv <pads = [1, 1]> (a, v) y = Flatten(c)",
        "for positions",
        shown=False,
        weights=AXES
        + ", float[2, 6, 3] w = {"
        + ", ".join(f"{i / 9:.2f}" for i in range(36))
        + "}, float[2, 1, 3] v = {1,2,3,4,5,6}",
    ),
    pair(
        "pooling over rows",
        "a = Unsqueeze(x, rows) t = Transpose <perm = [0, 2, 1]> (a) "
        "p = MaxPool <kernel_shape = [3], pads = [1, 1]> (t) s = Squeeze(p, rows) y = Transpose(s)",
        "a = Unsqueeze(x, cols) p = MaxPool <kernel_shape = [3], pads = [1, 1]> (a) "
        "y = Squeeze(p, cols)",
        "for positions",
        weights=AXES,
    ),
    pair(
        "where in the batch the largest is",
        "a = Unsqueeze(x, cols) p, i = MaxPool <kernel_shape = [2]> (a) y = Squeeze(i, cols)",
        "a = Unsqueeze(x, cols) p = MaxPool <kernel_shape = [2]> (a) y = Squeeze(p, cols)",
        "output 1",
        mixing_only={"outputs": "int64[N, M] y"},
        weights=AXES,
    ),
    pair(
        "elements written over rows",
        "i = ArgMax <axis = 0> (x) y = ScatterElements <axis = 0> (x, i, z)",
        "i = ArgMax <axis = 1> (x) z = ReduceSum(x, cols) y = ScatterElements <axis = 1> (x, i, z)",
        "axis 0",
        mixing_only={"weights": "float[1, 4] z = {9, 9, 9, 9}"},
        harmless_only={"weights": AXES},
    ),
    pair(
        "entries written at places named by rows",
        "i = ArgMax <axis = 1> (x) v = ReduceSum <keepdims = 0> (x, cols) "
        "s = ScatterND(zeros, i, v) y = Add(x, s)",
        "v = ReduceSum(x, cols) t = Transpose(x) u = Transpose(v) s = ScatterND(t, one, u) "
        "y = Transpose(s)",
        "names for each row",
        weights=AXES + ", float[4] zeros = {0, 0, 0, 0}, int64[1, 1] one = {1}",
    ),
    pair(
        "as many classes as rows",
        "n = Shape <end = 1> (x) i = ArgMax <axis = 1, keepdims = 0> (x) y = OneHot(i, n, v)",
        "n = Shape <start = 1> (x) i = ArgMax <axis = 1, keepdims = 0> (x) y = OneHot(i, n, v)",
        "as many classes",
        shown=False,
        weights="float[2] v = {0, 1}",
    ),
    pair(
        "random noise",
        "r = RandomNormalLike(x) y = Add(x, r)",
        "r = Sin(x) y = Add(x, r)",
        "random",
    ),
    pair(
        "dropout left on",
        "y = Dropout(x, ratio, on)",
        "y = Dropout(x, ratio, off)",
        "training mode",
        weights="float ratio = {0.5}, bool on = {1}, bool off = {0}",
    ),
    pair(
        "an operator nobody knows",
        "y = com.example.Magic(x)",
        "y = Tanh(x)",
        "of domain 'com.example' of which is not known how it treats rows",
        shown=False,
        extra=', "com.example" : 1',
    ),
    pair(
        "an operator without a rule",
        "y, i, j, c = Unique <axis = 0> (x)",
        "y = Tanh(x)",
        "of which is not known how it treats rows",
        shown=False,
    ),
    pair(
        "a branch chosen by the batch",
        """m = ReduceMax <keepdims = 0> (x) c = Greater(m, h)
        y = If (c) <then_branch = a () => (float[N, 4] p) { p = Neg(x) },
                    else_branch = b () => (float[N, 4] q) { q = Identity(x) }>""",
        """n = Shape <start = 1> (x) c = Greater(n, four)
        y = If (c) <then_branch = a () => (float[N, 4] p) { p = Neg(x) },
                    else_branch = b () => (float[N, 4] q) { q = Identity(x) }>""",
        "takes the maximum over axis 0",
        weights="float h = {0.9}, int64[1] four = {4}",
    ),
    pair(
        "a branch chosen by the number of rows",
        """n = Shape <end = 1> (x) c = Greater(n, four)
        y = If (c) <then_branch = a () => (float[N, 4] p) { p = Neg(x) },
                    else_branch = b () => (float[N, 4] q) { q = Identity(x) }>""",
        """n = Shape <end = 1> (x) c = Greater(n, zero)
        y = If (c) <then_branch = a () => (float[N, 4] p) { p = Neg(x) },
                    else_branch = b () => (float[N, 4] q) { q = Identity(x) }>""",
        "the number of rows",
        weights="int64[1] four = {4}, int64[1] zero = {0}",
    ),
    pair(
        "a loop over rows that carries a value",
        """n = Shape <end = 1> (x) s = Squeeze(n)
        l, y = Loop (s, go, start) <body = b (int64 i, bool c, float[4] a) =>
            (bool d, float[4] e, float[4] f)
            { d = Identity(c) r = Gather(x, i) e = Add(a, r) f = Identity(e) }>""",
        """n = Shape <end = 1> (x) s = Squeeze(n)
        y = Loop (s, go) <body = b (int64 i, bool c) => (bool d, float[4] f)
            { d = Identity(c) r = Gather(x, i) f = Neg(r) }>""",
        "from row to row",
        weights="bool go = {1}, float[4] start = {0, 0, 0, 0}",
    ),
    pair(
        "a loop over rows that looks at another one",
        """n = Shape <end = 1> (x) s = Squeeze(n) z = Sub(s, one)
        y = Loop (s, go) <body = b (int64 i, bool c) => (bool d, float[4] f)
            { d = Identity(c) j = Sub(z, i) r = Gather(x, j) f = Neg(r) }>""",
        """n = Shape <end = 1> (x) s = Squeeze(n) z = Sub(s, one)
        y = Loop (s, go) <body = b (int64 i, bool c) => (bool d, float[4] f)
            { d = Identity(c) j = Sub(i, zero) r = Gather(x, j) f = Neg(r) }>""",
        "which holds the rows",
        weights="bool go = {1}, int64 one = {1}, int64 zero = {0}",
    ),
    pair(
        "a loop over rows that counts them",
        """n = Shape <end = 1> (x) s = Squeeze(n)
        y = Loop (s, go) <body = b (int64 i, bool c) => (bool d, float[4] f)
            { d = Identity(c) r = Gather(x, i) k = Cast <to = 1> (i) f = Add(r, k) }>""",
        """n = Shape <end = 1> (x) s = Squeeze(n)
        y = Loop (s, go) <body = b (int64 i, bool c) => (bool d, float[4] f)
            { d = Identity(c) r = Gather(x, i) k = Cast <to = 1> (w) f = Add(r, k) }>""",
        "the number of rows",
        weights="bool go = {1}, int64 w = {3}",
    ),
    pair(
        "a loop over steps that sums over rows",
        """y = Loop (three, go, x) <body = b (int64 i, bool c, float[N, 4] a) =>
            (bool d, float[N, 4] e)
            { d = Identity(c) m = ReduceMean <axes = [0]> (a) e = Sub(a, m) }>""",
        """y = Loop (three, go, x) <body = b (int64 i, bool c, float[N, 4] a) =>
            (bool d, float[N, 4] e)
            { d = Identity(c) m = ReduceMean <axes = [1]> (a) e = Sub(a, m) }>""",
        "averages over axis 0",
        weights="bool go = {1}, int64 three = {3}",
    ),
    pair(
        "a loop that ends by the data of rows",
        """y = Loop (three, go, x) <body = b (int64 i, bool c, float[N, 4] a) =>
            (bool d, float[N, 4] e)
            { m = ReduceMax <keepdims = 0> (a) d = Less(m, h) e = Add(a, a) }>""",
        """y = Loop (three, go, x) <body = b (int64 i, bool c, float[N, 4] a) =>
            (bool d, float[N, 4] e)
            { d = Less(i, two) e = Add(a, a) }>""",
        "takes the maximum over axis 0",
        weights="bool go = {1}, int64 three = {3}, int64 two = {2}, float h = {1.5}",
    ),
    pair(
        "a scan along rows",
        """l, y = Scan <num_scan_inputs = 1, body = b (float[4] a, float[4] r) =>
            (float[4] e, float[4] f) { e = Add(a, r) f = Identity(e) }> (start, x)""",
        """t = Transpose(x) s = ReduceSum <keepdims = 0> (x, cols)
        l, z = Scan <num_scan_inputs = 1, body = b (float[N] a, float[N] r) =>
            (float[N] e, float[N] f) { e = Add(a, r) f = Identity(e) }> (s, t)
        y = Transpose(z)""",
        "steps along axis 0",
        weights=AXES + ", float[4] start = {0, 0, 0, 0}",
    ),
    pair(
        "a sequence cut along the batch",
        "s = SplitToSequence <axis = 0> (x) f = SequenceAt(s, zero) y = Sub(x, f)",
        "s = SplitToSequence <axis = 1> (x) f = SequenceAt(s, zero) y = Sub(x, f)",
        "splits axis 0",
        weights="int64 zero = {0}",
    ),
    pair(
        "rows sorted by a score and left so",
        """v = ReduceSum <keepdims = 0> (x, cols) n = Shape(v) t, i = TopK(v, n)
        y = Gather(x, i)""",
        """v = ReduceSum <keepdims = 0> (x, cols) n = Shape(v) t, i = TopK(v, n)
        z = Gather(x, i) s = Squeeze(n) r = Range(zero, s, one) e = ConstantOfShape
        <value = int64[1] {0}> (n) b = ScatterElements <axis = 0> (e, i, r) y = Gather(z, b)""",
        "in another order",
        weights=AXES + ", int64 zero = {0}, int64 one = {1}",
    ),
    pair(
        "rows sorted twice instead of back",
        """v = ReduceSum <keepdims = 0> (x, cols) n = Shape(v) t, i = TopK(v, n)
        z = Gather(x, i) y = Gather(z, i)""",
        """v = ReduceSum <keepdims = 0> (x, cols) n = Shape(v) t, i = TopK(v, n)
        z = Gather(x, i) k = Tanh(z) s = Squeeze(n) r = Range(zero, s, one) e = ConstantOfShape
        <value = int64[1] {0}> (n) b = ScatterElements <axis = 0> (e, i, r) y = Gather(k, b)""",
        "positions in the batch",
        weights=AXES + ", int64 zero = {0}, int64 one = {1}",
    ),
    pair(
        "sorted rows added to unsorted ones",
        """v = ReduceSum <keepdims = 0> (x, cols) n = Shape(v) t, i = TopK(v, n)
        z = Gather(x, i) y = Add(x, z)""",
        """v = ReduceSum <keepdims = 0> (x, cols) n = Shape(v) t, i = TopK(v, n)
        z = Gather(x, i) w = Gather(x, i) a = Add(w, z) s = Squeeze(n) r = Range(zero, s, one)
        e = ConstantOfShape <value = int64[1] {0}> (n)
        b = ScatterElements <axis = 0> (e, i, r) y = Gather(a, b)""",
        "rows in another order",
        weights=AXES + ", int64 zero = {0}, int64 one = {1}",
    ),
    pair(
        "rows picked by a mask, left packed",
        """v = ReduceSum <keepdims = 0> (x, cols) m = Greater(v, h) k = NonZero(m)
        i = Transpose(k) y = GatherND(x, i)""",
        """v = ReduceSum <keepdims = 0> (x, cols) m = Greater(v, h) k = NonZero(m)
        i = Transpose(k) p = GatherND(x, i) t = Neg(p) y = ScatterND(x, i, t)""",
        "a selection of rows",
        weights=AXES + ", float h = {2.0}",
    ),
    pair(
        "rows picked by one mask, put back by another",
        """v = ReduceSum <keepdims = 0> (x, cols) m = Greater(v, h) w = Less(v, h) k = NonZero(m)
        q = NonZero(w) i = Transpose(k) j = Transpose(q) p = GatherND(x, i) t = Neg(p)
        y = ScatterND(x, j, t)""",
        """v = ReduceSum <keepdims = 0> (x, cols) m = Greater(v, h) w = Greater(v, h)
        k = NonZero(m) q = NonZero(w) i = Transpose(k) j = Transpose(q) p = GatherND(x, i)
        t = Neg(p) y = ScatterND(x, j, t)""",
        "",
        shown=False,
        weights=AXES + ", float h = {2.0}",
    ),
    pair(
        "elements picked by a mask that differs inside rows",
        """m = Greater(x, h) k = NonZero(m) i = Transpose(k) p = GatherND(x, i)
        y = Unsqueeze(p, cols)""",
        """v = ReduceSum(x, cols) m = Greater(v, h) n = Shape(x) e = Expand(m, n) k = NonZero(e)
        i = Transpose(k) p = GatherND(x, i) t = Neg(p) y = ScatterND(x, i, t)""",
        "one after another",
        shown=False,
        weights=AXES + ", float h = {0.5}",
    ),
]


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
def test_rows_that_interact_are_never_called_independent(case: Pair) -> None:
    nodes, arguments = case.mixing
    model = graph(nodes, **arguments)

    proof = prove_rows(model)

    assert not proof.independent
    assert proof.reason.startswith("output 'y': ")
    assert any(part in proof.reason for part in case.reason.split("|")), proof.reason
    if case.shown:
        assert not confirmed(model, claimed(proof)), "the model does not mix rows after all"


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.name)
def test_twins_in_which_rows_stay_apart_are_proven(case: Pair) -> None:
    nodes, arguments = case.harmless
    model = graph(nodes, **arguments)

    proof = prove_rows(model)

    assert proof.independent, proof.reason
    assert confirmed(model, proof)


def claimed(proof: RowProof) -> RowProof:
    """What somebody would believe who never looked at the graph."""
    return RowProof(True, 1, proof.input_axes, {"y": 0}, "", paddable=True, splittable=True)


def confirmed(model: onnx.ModelProto, proof: RowProof) -> bool:
    return check_rows(
        OrtModelRunner(), model.SerializeToString(), read_signature(model), proof,
        rng=np.random.default_rng(3),
    ).ok  # fmt: skip
