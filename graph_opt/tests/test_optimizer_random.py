"""Random models out of what exporters write for embeddings: optimised, they answer as before.

Each model looks up several features, every one drawn from the forms that real exporters give ids
and what follows a lookup; some are damaged in one place afterwards. Whatever the optimiser makes of
a model that runs has to give the same numbers and to refuse the same batches.

`ANABRANCH_RANDOM_MODELS` is the number of models, 60 by default.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anabranch_testing.optimized_models import (
    OptimizedModel,
    WholeModel,
    cut_all,
    same_answers,
)
from anabranch_wire.errors import AnabranchError, InvalidInput

MODELS: Final = int(os.environ.get("ANABRANCH_RANDOM_MODELS", "60"))

Choice = Callable[[int], int]
"""Draws a number below its argument."""

INPUTS: Final = {
    "user": (TensorProto.INT64, ()),
    "item": (TensorProto.INT64, ()),
    "short": (TensorProto.INT32, ()),
    "fields": (TensorProto.INT64, (3,)),
    "history": (TensorProto.INT64, (4,)),
    "packed": (TensorProto.FLOAT, (6,)),
    "wide": (TensorProto.DOUBLE, (2,)),
    "length": (TensorProto.INT64, ()),
    "dense": (TensorProto.FLOAT, (2,)),
}
ROWS: Final = (6, 9, 14)
"""Rows of tables; ids are drawn around them."""


@dataclass(frozen=True)
class Ids:
    """A value of integers.

    Attributes:
        name: of it.
        shape: without the rows, which are axis 0.
    """

    name: str
    shape: tuple[int, ...]


@dataclass
class Draft:
    """A model under construction."""

    choose: Choice
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    tables: list[tuple[str, int, int, type]] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    known_ids: list[Ids] = field(default_factory=list)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, array: NDArray[Any] | np.generic, name: str = "") -> str:
        name = name or f"const_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[self.choose(len(options))]

    def table(self, dtype: type = np.float32) -> tuple[str, int, int, type]:
        """A new table, or one that another feature reads."""
        same = [each for each in self.tables if each[3] is dtype]
        if same and self.choose(3) == 0:
            return same[self.choose(len(same))]
        rows, dim = self.one_of(ROWS), 1 + self.choose(4)
        numbers = np.random.default_rng(len(self.weights)).random((rows, dim))
        name = self.constant(numbers.astype(dtype), f"table_{len(self.tables)}.weight")
        self.tables.append((name, rows, dim, dtype))
        return self.tables[-1]


def plain(draft: Draft) -> Ids:
    name = draft.one_of(["user", "item", "short", "fields", "history"])
    shape = INPUTS[name][1]
    if draft.choose(2):
        name = draft.op("Cast", draft.op("Cast", name, to=7), to=7)
    return Ids(name, shape)


def sliced(draft: Draft) -> Ids:
    """Columns of a float input, as deepctr models have them."""
    source, width = draft.one_of([("packed", 4), ("wide", 2)])
    begin = draft.choose(width)
    end = begin + 1 + draft.choose(width - begin)
    part = draft.op("Slice", source, draft.ints(begin), draft.ints(end), draft.ints(1))
    if end - begin == 1 and draft.choose(2):
        part = draft.op("Squeeze", part, draft.ints(1))
        return Ids(draft.op("Cast", part, to=7), ())
    return Ids(draft.op("Cast", part, to=draft.one_of([6, 7])), (end - begin,))


def column(draft: Draft) -> Ids:
    source = draft.one_of(["packed", "fields", "history"])
    width = 4 if source == "packed" else INPUTS[source][1][0]
    if draft.choose(2):
        index = draft.constant(np.array(draft.choose(width), np.int64))
        return Ids(draft.op("Cast", draft.op("Gather", source, index, axis=1), to=7), ())
    picked = [draft.choose(width) for _ in range(1 + draft.choose(3))]
    if draft.choose(2):
        columns = draft.op("Gather", source, draft.ints(*picked), axis=1)
    else:
        turned = draft.op("Transpose", source, perm=[1, 0])
        coordinates = draft.constant(np.array([[each] for each in picked], np.int64))
        columns = draft.op("Transpose", draft.op("GatherND", turned, coordinates), perm=[1, 0])
    return Ids(draft.op("Cast", columns, to=7), (len(picked),))


def shifted(draft: Draft) -> Ids:
    """Offsets of fields into a stacked table."""
    offsets = [draft.choose(5) for _ in range(3)]
    shift = draft.constant(np.array([offsets], np.int64))
    pair = ["fields", shift] if draft.choose(2) else [shift, "fields"]
    return Ids(draft.op(draft.one_of(["Add", "Add", "Sub"]), *pair), (3,))


def computed(draft: Draft) -> Ids:
    rows = draft.constant(np.array(draft.one_of(ROWS), np.int64))
    a, b = draft.one_of([("user", "item"), ("item", "length"), ("length", "user")])
    match draft.choose(6):
        case 0:
            return Ids(draft.op("Mod", a, rows), ())
        case 1:
            crossed = draft.op("Add", draft.op("Mul", a, draft.ints(3)), b)
            return Ids(draft.op("Mod", crossed, rows), ())
        case 2:
            return Ids(draft.op("Div", a, draft.ints(2)), ())
        case 3:
            is_known = draft.op("Less", a, rows)
            return Ids(draft.op("Where", is_known, a, draft.ints(0)), ())
        case 4:
            return Ids(draft.op("Cast", draft.op("Cast", a, to=5), to=7), ())
        case _:
            return Ids(draft.op("Max", draft.op("Min", a, draft.ints(8)), draft.ints(0)), ())


def joined(draft: Draft) -> Ids:
    parts = ["fields", "history", draft.op("Unsqueeze", "user", draft.ints(1))]
    widths = [3, 4, 1]
    picked = [draft.choose(3) for _ in range(2)]
    name = draft.op("Concat", *(parts[each] for each in picked), axis=1)
    return Ids(name, (sum(widths[each] for each in picked),))


def side_feature(draft: Draft) -> Ids:
    """An item's category, read from integers in the graph."""
    numbers = np.random.default_rng(3).integers(0, 5, 9)
    return Ids(draft.op("Gather", draft.constant(numbers.astype(np.int64)), "item"), ())


def positions(draft: Draft) -> Ids:
    count = draft.op("Gather", draft.op("Shape", "history"), draft.ints(1))
    start, step = (draft.constant(np.array(each, np.int64)) for each in (0, 1))
    steps = draft.op("Range", start, draft.op("Squeeze", count), step)
    if draft.choose(2):
        return Ids(draft.op("Expand", steps, draft.op("Shape", "history")), (4,))
    shifted = draft.op("Mul", "history", draft.ints(0))
    return Ids(draft.op("Add", shifted, steps), (4,))


def constants(draft: Draft) -> Ids:
    """The same ids for every row."""
    shape = draft.op("Shape", "fields")
    value = helper.make_tensor("value", TensorProto.INT64, [1], [draft.choose(5)])
    return Ids(draft.op("ConstantOfShape", shape, value=value), (3,))


def again(draft: Draft) -> Ids:
    """The ids of another feature."""
    return draft.one_of(draft.known_ids) if draft.known_ids else plain(draft)


ID_FORMS: Final = (
    plain, plain, sliced, sliced, column, shifted, computed, joined, side_feature, positions,
    constants, again,
)  # fmt: skip


def moved(draft: Draft, ids: Ids) -> Ids:
    """The same ids in another layout."""
    match draft.choose(5):
        case 0:
            return Ids(draft.op("Unsqueeze", ids.name, draft.ints(1)), (1, *ids.shape))
        case 1 if ids.shape:
            return Ids(
                draft.op("Reshape", ids.name, draft.ints(-1, int(np.prod(ids.shape)))),
                (int(np.prod(ids.shape)),),
            )
        case 2 if len(ids.shape) == 1:
            first = draft.op("Slice", ids.name, draft.ints(0), draft.ints(1), draft.ints(1))
            return Ids(first, (1,))
        case _:
            return ids


def looked_up(draft: Draft, ids: Ids) -> tuple[str, tuple[int, ...]]:
    """Rows of a table: name, and shape without the rows."""
    is_half = draft.choose(6) == 0
    table, _, dim, _ = draft.table(np.float16 if is_half else np.float32)
    match draft.choose(6):
        case 0:
            last = draft.op("Unsqueeze", ids.name, draft.ints(-1))
            rows = draft.op("GatherND", table, last)
        case 1 if not ids.shape:
            column = draft.op("Unsqueeze", ids.name, draft.ints(1))
            spread = draft.op("Expand", column, draft.ints(1, dim))
            rows = draft.op("GatherElements", table, spread, axis=0)
        case 2 if ids.shape:  # one after the other, as one long list
            flat = draft.op("Gather", table, draft.op("Reshape", ids.name, draft.ints(-1)))
            rows = draft.op("Reshape", flat, draft.ints(-1, *ids.shape, dim))
        case 3 if len(ids.shape) == 1:
            turned = draft.op("Transpose", ids.name, perm=[1, 0])
            rows = draft.op("Transpose", draft.op("Gather", table, turned), perm=[1, 0, 2])
        case _:
            rows = draft.op("Gather", table, ids.name, axis=draft.one_of([0, 0, -2]))
    if is_half:
        rows = draft.op("Cast", rows, to=1)
    return rows, (*ids.shape, dim)


def pooled(draft: Draft, ids: Ids, rows: str) -> str:
    """A masked sum, mean or maximum over a sequence [N, dim]."""
    padding = draft.op("Equal", ids.name, draft.constant(np.array(0, np.int64)))
    keep = draft.op("Unsqueeze", draft.op("Cast", draft.op("Not", padding), to=1), draft.ints(2))
    match draft.choose(3):
        case 0:
            return draft.op("ReduceSum", draft.op("Mul", rows, keep), draft.ints(1), keepdims=0)
        case 1:
            total = draft.op("ReduceSum", draft.op("Mul", rows, keep), draft.ints(1), keepdims=0)
            count = draft.op("ReduceSum", keep, draft.ints(1), keepdims=0)
            return draft.op("Div", total, draft.op("Add", count, draft.constant(np.float32(1e-8))))
        case _:
            return draft.op("ReduceMax", rows, axes=[1], keepdims=0)


def feature(draft: Draft) -> None:
    ids = draft.one_of(ID_FORMS)(draft)
    if ids.name not in INPUTS and draft.nodes[-1].op_type in ("Cast", "Gather", "Slice"):
        draft.known_ids.append(ids)
    ids = moved(draft, ids)
    rows, shape = looked_up(draft, ids)
    width = shape[-1]
    match draft.choose(6):
        case 0 if len(shape) == 2:
            flat = pooled(draft, Ids(draft.op("Cast", ids.name, to=7), ids.shape), rows)
        case 1 if len(shape) > 1:
            picked = draft.op("Gather", rows, draft.constant(np.array(0, np.int64)), axis=1)
            flat = draft.op("Flatten", picked)
        case 2:
            flat = draft.op("Reshape", rows, draft.ints(0, int(np.prod(shape))))
        case 3:
            table, _, dim, dtype = draft.one_of(draft.tables)
            if dim == width and dtype is np.float32:
                product = draft.op("MatMul", rows, draft.op("Transpose", table, perm=[1, 0]))
                flat = draft.op("Flatten", product)
            else:
                flat = draft.op("Flatten", rows)
        case _:
            flat = draft.op("Flatten", rows)
    draft.features.append(flat)


def random_model(choose: Choice) -> onnx.ModelProto:
    """A model of a few features, its outputs what became of them."""
    draft = Draft(choose)
    for _ in range(1 + choose(5)):
        feature(draft)
    if choose(2):
        draft.features.append("dense")
    if choose(3) == 0:
        draft.features.append(draft.op("Slice", "packed", draft.ints(4), draft.ints(6),
                                       draft.ints(1)))  # fmt: skip
    outputs = [draft.op("Concat", *draft.features, axis=1)]
    if choose(3) == 0:  # a feature that is an output as well
        made = [name for name in draft.features if name != "dense"]
        outputs.append(draft.one_of(made))
    if choose(3) == 0:
        damage(draft)
    nodes = needed(draft.nodes, outputs)
    used = {name for node in nodes for name in node.input}
    inputs = [
        helper.make_tensor_value_info(name, dtype, ["N", *shape])
        for name, (dtype, shape) in INPUTS.items()
        if name in used
    ]
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", f"columns_{index}"])
        for index, name in enumerate(dict.fromkeys(outputs))
    ]
    graph = helper.make_graph(nodes, "drawn", inputs, declared, draft.weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def needed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Nodes that outputs depend on: what others refuse is no part of an answer."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def damage(draft: Draft) -> None:
    """Change one node or one constant; many such models do not run, and are not looked at."""
    node = draft.one_of(draft.nodes)
    match draft.choose(5):
        case 0 if node.op_type in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"):
            node.op_type = draft.one_of(["Add", "Sub", "Mul", "Max"])
        case 1 if node.op_type in ("Gather", "Concat", "Flatten"):
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("axis", draft.choose(3)))
        case 2 if node.op_type == "Cast":
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("to", draft.one_of([3, 5, 6, 7, 10, 11])))
        case 3:
            numbers = [each for each in draft.weights if each.data_type == TensorProto.INT64]
            if numbers:
                weight = draft.one_of(numbers)
                array = numpy_helper.to_array(weight) + 1
                weight.CopyFrom(numpy_helper.from_array(np.asarray(array), weight.name))
        case _:
            if len(node.input) > 1:
                first, second = node.input[:2]
                node.input[0], node.input[1] = second, first


def batch(model: onnx.ModelProto, rows: int, rng: np.random.Generator, *, wild: bool) -> Any:
    """Ids mostly inside of tables; wild ones are around their edges."""
    arrays: dict[str, NDArray[Any]] = {}
    for value in model.graph.input:
        dtype, shape = INPUTS[value.name]
        low, high = (-16, 17) if wild else (0, 4)
        numbers = rng.integers(low, high, (rows, *shape))
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
        array = numbers.astype(kind)
        if kind.kind == "f" and value.name != "dense":
            array += rng.random(array.shape).astype(kind) * np.where(array < 0, -0.9, 0.9)
        if wild and rows:  # one row may refuse the batch, the others should not
            keep = rng.integers(rows)
            tame = rng.integers(0, 4, array.shape).astype(kind)
            tame[keep] = array[keep]
            array = tame
        arrays[value.name] = array.astype(kind)
    return arrays


def verdict(model: onnx.ModelProto, seed: int) -> str:
    """`does not run`, `left`, `cut`, or what is different."""
    try:  # ONNX Runtime crashes on some models that are not sound
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return "does not run"
    whole = WholeModel(model)
    rng = np.random.default_rng(seed)
    try:
        whole.run(batch(model, 3, rng, wild=False))
    except InvalidInput:
        return "does not run"
    optimized = cut_all(model)
    parts = OptimizedModel(optimized)
    names = {each.name for each in model.graph.initializer}
    assert set(optimized.weights) <= names
    for rows in (0, 1, 2, 5, 3, 4):
        for wild in (False, True):
            one = batch(model, rows, rng, wild=wild)
            expected, found = answer(whole, one), answer(parts, one)
            if isinstance(expected, str) != isinstance(found, str):
                return f"{rows} rows: {expected} / {found} of {one}"
            if isinstance(expected, str) or isinstance(found, str):
                continue
            if not same_answers(found, expected):
                return f"{rows} rows: {expected} / {found} of {one}"
    return "cut" if optimized.lookups else "left"


def checked(model: onnx.ModelProto, seed: int) -> str:
    """The verdict, with the model in the message where an answer is another one."""
    found = verdict(model, seed)
    assert found in ("cut", "left", "does not run"), f"{onnx.printer.to_text(model)}\n{found}"
    return found


def answer(model: WholeModel | OptimizedModel, one: Any) -> Any:
    try:
        return model.run(one)
    except AnabranchError as error:
        return error.message


@settings(
    max_examples=MODELS,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_optimised_models_answer_as_before(data: st.DataObject) -> None:
    model = random_model(lambda count: data.draw(st.integers(0, max(0, count - 1))))

    checked(model, 1)


@pytest.mark.parametrize("part", range(4))
def test_most_random_models_run_and_are_cut(part: int) -> None:
    rng = np.random.default_rng(100 + part)
    verdicts = [
        checked(random_model(lambda count: int(rng.integers(max(1, count)))), number)
        for number in range(MODELS // 4)
    ]

    assert verdicts.count("cut") > len(verdicts) // 3
