"""Splits products whose input is partly the user's, so that the user's part can run once.

`Gemm(Concat(u, i), W, b)` becomes `Gemm(i, W_i, Gemm(u, W_u, b))`. Attention writes its input as
`[q, k, q - k, q * k] W` with a query of the candidate and keys of the user: that is linear, and
becomes `q (W1 + W3) + k (W2 - W3) + (q * k) W4`.

Weights stay whole under their own names: the parts are cut out of them in the graph, which a
backend does once, when it builds it. So a new weight goes where the old one was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.graph_constants import integers
from anabranch_graph_opt.user_side.columns import Term, last_axis_terms, row_sizes, row_terms
from anabranch_graph_opt.user_side.own_values import OwnValues, find_own_values

__all__ = ["ProductSplittingPass"]

_FEWEST: Final = 16
"""Columns that a product must be rid of: each of its results is picked and added instead."""


class ProductSplittingPass(ir.passes.InPlacePass):
    """Splits Gemm and MatMul of the main graph by constant weights.

    Requires inferred shapes. Nodes that become unused stay.

    Args:
        users: names of the inputs and buffers that hold a user.
    """

    def __init__(self, users: frozenset[str]) -> None:
        super().__init__()
        self._users = users

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place."""
        graph = model.graph
        own = find_own_values(graph, self._users)
        joined: dict[tuple[ir.Value, ...], ir.Value] = {}
        changed = False
        for node in list(graph):
            product = _product(node, own)
            if product is None:
                continue
            split = _by_rows(product, own) or _by_last_axis(product, own)
            if split is not None:
                _Rewriting(graph, product, split, joined).write()
                changed = True
        return ir.passes.PassResult(model, changed)


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """A node that multiplies a value by a weight.

    Attributes:
        node: Gemm or MatMul.
        value: its input.
        weight: [columns, outputs], or [outputs, columns] where `is_transposed`.
        is_transposed: as Gemm has it.
        bias: of a Gemm.
    """

    node: ir.Node
    value: ir.Value
    weight: ir.Value
    is_transposed: bool
    bias: ir.Value | None

    @property
    def columns(self) -> int:
        """Rows of the weight."""
        return _sizes(self.weight)[1 if self.is_transposed else 0]

    @property
    def outputs(self) -> int:
        """Columns of the result."""
        return _sizes(self.weight)[0 if self.is_transposed else 1]


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """How a product is to be split.

    Attributes:
        own: terms of the user.
        rest: terms of the candidates that have all axes of the input.
        repeated: terms of either side that are repeated along some axis.
        is_flat: terms are flat in each row of axis 0.
        is_reshaped: the input of the product is the terms' layout, reshaped to two axes.
    """

    own: tuple[Term, ...]
    rest: tuple[Term, ...]
    repeated: tuple[Term, ...]
    is_flat: bool
    is_reshaped: bool


def _product(node: ir.Node, own: OwnValues) -> _Product | None:
    """Return what a node multiplies; None where it is no product that could be split."""
    if node.op_type not in ("Gemm", "MatMul") or node.domain not in ("", "ai.onnx"):
        return None
    value, weight, *others = node.inputs
    if value is None or weight is None or value in own.values or own.is_constant(value):
        return None
    if not own.is_constant(weight) or weight.shape is None or len(weight.shape) != 2:
        return None
    if not all(isinstance(size, int) and size > 0 for size in weight.shape):
        return None
    attributes = node.attributes
    bias = others[0] if others else None
    if node.op_type == "MatMul":
        return _Product(node, value, weight, False, None)
    scales = [attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
    if scales != [1.0, 1.0] or (attributes.get_int("transA") or 0):
        return None
    if bias is not None and not _is_bias(bias, own):
        return None
    return _Product(node, value, weight, bool(attributes.get_int("transB") or 0), bias)


def _is_bias(value: ir.Value, own: OwnValues) -> bool:
    """Whether a value is the same for all rows of a batch."""
    return (
        own.is_constant(value)
        and value.shape is not None
        and all(size == 1 for size in list(value.shape)[:-1])
    )


def _by_rows(product: _Product, own: OwnValues) -> _Split | None:
    if product.value.shape is None or len(product.value.shape) != 2:
        return None
    terms = row_terms(product.value, own.values)
    mine = tuple(term for term in terms if term.value in own.values)
    rest = tuple(term for term in terms if term.value not in own.values)
    split = _Split(mine, rest, (), True, False)
    return split if rest and _is_worthwhile(split, terms, product) else None


def _by_last_axis(product: _Product, own: OwnValues) -> _Split | None:
    value, is_reshaped = product.value, False
    producer = value.producer()
    if value.shape is not None and len(value.shape) == 2 and producer is not None:
        source = producer.inputs[0] if producer.inputs else None
        if producer.op_type in ("Reshape", "Flatten") and source is not None:
            sizes = source.shape
            if sizes is not None and len(sizes) > 2 and sizes[-1] == product.columns:
                value, is_reshaped = source, True
    terms = last_axis_terms(value, own.values)
    whole = {term.value for term in terms if term.is_whole}
    mine = tuple(t for t in terms if t.value in whole and t.value in own.values)
    rest = tuple(t for t in terms if t.value in whole and t.value not in own.values)
    repeated = tuple(t for t in terms if t.value not in whole)
    split = _Split(mine, rest, repeated, False, is_reshaped)
    # Something has to have all axes of the result.
    return split if whole and _is_worthwhile(split, terms, product) else None


def _is_worthwhile(split: _Split, terms: Sequence[Term], product: _Product) -> bool:
    covered = [0] * product.columns
    for term in terms:
        if term.end > product.columns or term.begin == term.end:
            return False
        for column in range(term.begin, term.end):
            covered[column] = 1
    widths = {term.value: term.end - term.begin for term in split.rest}
    saved = product.columns - sum(widths.values())
    return all(covered) and bool(split.own) and saved >= _FEWEST


class _Rewriting:
    """Writes one product anew."""

    def __init__(
        self,
        graph: ir.Graph,
        product: _Product,
        split: _Split,
        joined: dict[tuple[ir.Value, ...], ir.Value],
    ) -> None:
        self._graph = graph
        self._product = product
        self._split = split
        self._joined = joined
        self._name = str(product.node.outputs[0].name)
        self._count = 0

    def write(self) -> None:
        """Replace the node."""
        product, split = self._product, self._split
        bias = product.bias
        mine = self._multiplied(split.own)
        if bias is not None:
            mine = self._add("Add", [mine, bias], mine.shape)
        repeated: dict[ir.Value, list[Term]] = {}
        for term in split.repeated:
            repeated.setdefault(term.value, []).append(term)
        result = mine
        for terms in repeated.values():
            result = self._add("Add", [result, self._multiplied(terms)], mine.shape)
        if split.rest:
            result = self._joined_to(result, split.rest)
        elif split.is_reshaped:
            result = self._rowed(result, product.outputs)
        self._replace(result)

    def _joined_to(self, sums: ir.Value, terms: Sequence[Term]) -> ir.Value:
        """Add a product to `sums`, which has all axes: in one pass, as the bias of a Gemm."""
        value, weight = self._factors(terms)
        sizes = row_sizes(value)
        if self._split.is_flat:
            return self._add("Gemm", [value, weight, sums], self._shape_of(value))
        if sizes is None and not self._split.is_reshaped:  # back to axes that are not known
            product = self._add("MatMul", [value, weight], self._shape_of(value))
            return self._add("Add", [sums, product], sums.shape)
        outputs = self._product.outputs
        rows = self._rowed(value, _sizes_of_last(value))
        result = self._add("Gemm", [rows, weight, self._rowed(sums, outputs)], None)
        if self._split.is_reshaped or sizes is None:
            return result
        target = integers(self._graph, [-1, *sizes[:-1], outputs])
        return self._add("Reshape", [result, target], sums.shape)

    def _rowed(self, value: ir.Value, columns: int) -> ir.Value:
        """Return [*, columns] with all axes but the last in one."""
        return self._add("Reshape", [value, integers(self._graph, [-1, columns])], None)

    def _multiplied(self, terms: Sequence[Term]) -> ir.Value:
        value, weight = self._factors(terms)
        return self._add("MatMul", [value, weight], self._shape_of(value))

    def _factors(self, terms: Sequence[Term]) -> tuple[ir.Value, ir.Value]:
        """Return values side by side, and the rows of the weight that belong to them."""
        uses: dict[ir.Value, list[Term]] = {}
        for term in terms:
            uses.setdefault(term.value, []).append(term)
        return self._side_by_side(tuple(uses)), self._weight(uses)

    def _side_by_side(self, values: tuple[ir.Value, ...]) -> ir.Value:
        if values in self._joined:
            return self._joined[values]
        parts = list(values)
        if self._split.is_flat:
            parts = [self._flat(value) for value in values]
        if len(parts) == 1:
            return parts[0]
        widths = [_sizes_of_last(part) for part in parts]
        assert parts[0].shape is not None
        shape = ir.Shape([*list(parts[0].shape)[:-1], sum(widths)])
        self._joined[values] = self._add("Concat", parts, shape, axis=len(shape) - 1)
        return self._joined[values]

    def _flat(self, value: ir.Value) -> ir.Value:
        sizes = row_sizes(value)
        assert sizes is not None
        assert value.shape is not None
        if len(sizes) == 1:
            return value
        width = prod(sizes)
        shape = ir.Shape([value.shape[0], width])
        return self._add("Reshape", [value, integers(self._graph, [0, width])], shape)

    def _weight(self, uses: Mapping[ir.Value, Sequence[Term]]) -> ir.Value:
        """Return rows of the weight, below each other, added up where a value comes twice."""
        parts: list[ir.Value] = []
        pending: tuple[int, int] | None = None
        for terms in uses.values():
            first = terms[0]
            if len(terms) == 1 and not first.is_negative:
                if pending is not None and pending[1] == first.begin:
                    pending = (pending[0], first.end)
                    continue
                parts += [] if pending is None else [self._rows(*pending)]
                pending = (first.begin, first.end)
                continue
            parts += [] if pending is None else [self._rows(*pending)]
            pending = None
            parts.append(self._combined(terms))
        parts += [] if pending is None else [self._rows(*pending)]
        if len(parts) == 1:
            return parts[0]
        rows = sum(_sizes(part)[0] for part in parts)
        return self._add("Concat", parts, ir.Shape([rows, self._product.outputs]), axis=0)

    def _combined(self, terms: Sequence[Term]) -> ir.Value:
        ordered = sorted(terms, key=lambda term: term.is_negative)
        result = self._rows(ordered[0].begin, ordered[0].end)
        if ordered[0].is_negative:
            result = self._add("Neg", [result], result.shape)
        for term in ordered[1:]:
            operator = "Sub" if term.is_negative else "Add"
            part = self._rows(term.begin, term.end)
            result = self._add(operator, [result, part], result.shape)
        return result

    def _rows(self, begin: int, end: int) -> ir.Value:
        product, graph = self._product, self._graph
        axis = 1 if product.is_transposed else 0
        bounds = [integers(graph, [number]) for number in (begin, end, axis)]
        sizes = [end - begin, product.outputs]
        cut = ir.Shape(sizes[::-1] if product.is_transposed else sizes)
        part = self._add("Slice", [product.weight, *bounds], cut)
        if product.is_transposed:
            part = self._add("Transpose", [part], ir.Shape(sizes), perm=[1, 0])
        return part

    def _shape_of(self, value: ir.Value) -> ir.Shape:
        assert value.shape is not None
        return ir.Shape([*list(value.shape)[:-1], self._product.outputs])

    def _add(
        self,
        operator: str,
        inputs: Sequence[ir.Value],
        shape: ir.Shape | None,
        **attributes: object,
    ) -> ir.Value:
        # onnx-ir takes any value that an attribute can have, and declares fewer.
        node = ir.node(operator, list(inputs), attributes)  # type: ignore[arg-type]
        made = node.outputs[0]
        made.name = f"{self._name}_split{self._count}"
        made.type, made.shape = self._product.node.outputs[0].type, shape
        self._count += 1
        self._graph.insert_before(self._product.node, node)
        return made

    def _replace(self, new: ir.Value) -> None:
        node = self._product.node
        old = node.outputs[0]
        is_output = old.is_graph_output()
        new.type, new.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        self._graph.remove(node, safe=True)
        if is_output:
            new.name = old.name


def _sizes(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return tuple(int(str(size)) for size in value.shape)


def _sizes_of_last(value: ir.Value) -> int:
    assert value.shape is not None
    return int(str(value.shape[-1]))
