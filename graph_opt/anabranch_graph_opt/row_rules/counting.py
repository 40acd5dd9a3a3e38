"""Operators that turn shapes into numbers and numbers into shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.flow import (
    SCALAR,
    Flow,
    Mixing,
    NumberKind,
    Numbers,
    State,
    Steps,
    axis_size,
    plain,
)
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_rules.broadcasting import carried_by
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import ONE, Size, product

__all__ = ["RULES", "constant_flow"]

_MAX_NUMBERS: Final = 256
"""Longer vectors are followed as data, not number by number."""
_NUMBER_KINDS: Final[Mapping[ir.DataType, NumberKind]] = {
    ir.DataType.INT64: "int",
    ir.DataType.INT32: "int",
    ir.DataType.BOOL: "bool",
}


def constant_flow(tensor: ir.TensorProtocol) -> Flow:
    """Claim on a weight or another constant; small integers are kept as numbers.

    Only integers of rank 0 or 1 are read; external files of other weights are not opened.
    """
    shape = tuple(int(size) for size in tensor.shape.numpy())
    flow = Flow(tuple(plain(size) for size in shape))
    kind = _NUMBER_KINDS.get(tensor.dtype)
    if kind is None or len(shape) > 1 or tensor.size > _MAX_NUMBERS:
        return flow
    try:
        values = tensor.numpy().reshape(-1).tolist()
    except (OSError, ValueError):  # external data that is not there: as any other weight
        return flow
    return replace(flow, meaning=Numbers(tuple(Size.of(int(value)) for value in values), kind))


def _constant(visit: Visit) -> Sequence[State]:
    attributes = visit.node.attributes
    if "value" in attributes:
        return [constant_flow(attributes["value"].as_tensor())]
    if "value_int" in attributes:
        return [replace(SCALAR, meaning=Numbers((Size.of(attributes["value_int"].as_int()),)))]
    if "value_ints" in attributes:
        values = tuple(map(Size.of, attributes["value_ints"].as_ints()))
        return [Flow((plain(len(values)),), meaning=Numbers(values))]
    if "value_float" in attributes or "value_string" in attributes:
        return [SCALAR]
    if "value_floats" in attributes:
        return [Flow((plain(len(attributes["value_floats"].as_floats())),))]
    if "value_strings" in attributes:
        return [Flow((plain(len(attributes["value_strings"].as_strings())),))]
    raise Mixing("holds a sparse constant")


def _shape(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    end = visit.node.attributes.get("end")
    kept = flow.axes[visit.integer("start", 0) : None if end is None else end.as_int()]
    return [Flow((plain(len(kept)),), meaning=Numbers(tuple(axis_size(f) for f in kept)))]


def _size(visit: Visit) -> Sequence[State]:
    total = product(axis_size(factors) for factors in visit.flow(0).axes)
    return [replace(SCALAR, meaning=Numbers((total,)))]


def _filled(visit: Visit) -> Sequence[State]:
    shape = visit.flow(0)
    if shape.numbers is None:
        if shape.rank == 1 and (rank := axis_size(visit.fixed(0).axes[0]).constant) is not None:
            return [Flow(tuple(plain(visit.facts.unknown()) for _ in range(rank)))]
        raise Mixing(f"takes its shape {visit.name(0)} from numbers that are not followed")
    axes = [visit.facts.factors(size) for size in shape.numbers]
    flow = replace(carried_by(axes, []), same=True)
    value = visit.node.attributes.get("value")
    if value is None:
        return [flow]
    tensor = value.as_tensor()
    length = shape.numbers[0].constant if len(axes) == 1 else None
    if length is not None and length <= _MAX_NUMBERS and tensor.dtype is ir.DataType.INT64:
        fill = Size.of(int(tensor.numpy().reshape(-1)[0]))
        return [replace(flow, meaning=Numbers((fill,) * length))]
    return [flow]


def _range(visit: Visit) -> Sequence[State]:
    ends = [visit.flow(i) for i in range(3)]
    numbers = [end.numbers for end in ends]
    if any(values is None or len(values) != 1 for values in numbers):
        for i in range(3):
            visit.fixed(i)
        return [Flow((plain(visit.facts.unknown()),))]
    first, limit, step = (values[0] for values in numbers if values is not None)
    if any(end.kind == "float" for end in ends):
        if any(size.counts_rows for size in (first, limit, step)):
            raise Mixing("counts rows in floating point")
        return [Flow((plain(visit.facts.unknown()),))]
    return [_counted_up(visit.facts, first, limit, step)]


def _counted_up(facts: Facts, first: Size, limit: Size, step: Size) -> Flow:
    constants = first.constant, limit.constant, step.constant
    a, b, c = constants
    if a is not None and b is not None and c is not None and c != 0:
        length = len(range(a, b, c))
        if length <= _MAX_NUMBERS:
            values = tuple(map(Size.of, range(a, b, c)))
            return Flow((plain(length),), meaning=Numbers(values))
        return Flow((plain(length),))
    length_size = (limit - first).over(step)
    known = length_size is not None and facts.positive(length_size + ONE) is True
    if not any(size.counts_rows for size in (first, limit, step)):
        return Flow((plain(length_size if known and length_size else facts.unknown()),))
    if length_size is None or not known or first.counts_rows or step.counts_rows:
        raise Mixing("counts to a number that depends on the rows")
    if facts.space_of_size(length_size) is not None:
        return Flow((facts.factors(length_size),), same=True, meaning=Steps(first, step))
    if facts.space_of_size(length_size - ONE) is not None:
        return Flow((plain(length_size),), meaning=Steps(first, step))
    raise Mixing("counts to a number that depends on the rows")


def _one_hot(visit: Visit) -> Sequence[State]:
    indices, depth, values = visit.data(0), visit.flow(1).numbers, visit.flow(2).numbers
    if depth is None:
        visit.fixed(1)
    size = depth[0] if depth is not None else visit.facts.unknown()
    if size.counts_rows:
        raise Mixing("makes as many classes as there are rows")
    where = counted(visit.integer("axis", -1), indices.rank + 1)
    axes = [*indices.axes[:where], plain(size), *indices.axes[where:]]
    hot = visit.flow(0).constants
    if hot and values and size.constant and where == indices.rank:
        classes = range(size.constant)
        chosen = [values[i in (index, index + len(classes))] for index in hot for i in classes]
        return [Flow(tuple(axes), meaning=Numbers(tuple(chosen), visit.flow(2).kind or "int"))]
    visit.fixed(2)
    return [replace(indices, axes=tuple(axes), number=None)]


RULES: Final[Mapping[str, Rule]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "OneHot": _one_hot,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
