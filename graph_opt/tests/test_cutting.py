"""Taking lookups out: what is left answers as before, in few buffers whose columns fit."""

from typing import Any

import numpy as np
import onnx
import pytest

from anabranch_graph_opt.optimized import Optimized
from anabranch_testing.optimized_models import (
    OptimizedModel,
    WholeModel,
    cut_all,
    parsed,
    same_answers,
)
from anabranch_wire.errors import InvalidInput

RNG = np.random.default_rng(0)
ITEMS = RNG.random((20, 3)).astype(np.float32)
USERS = RNG.random((10, 2)).astype(np.float32)


def check(model: onnx.ModelProto, **inputs: Any) -> Optimized:
    """Optimise a model, after a look whether it answers as before, and refuses as before."""
    optimized = cut_all(model)
    whole, parts = WholeModel(model), OptimizedModel(optimized)
    arrays: Any = {name: np.asarray(array) for name, array in inputs.items()}
    assert same_answers(parts.run(arrays), whole.run(arrays))
    empty: Any = {
        value.name: array[:0] if value.type.tensor_type.shape.dim[0].dim_param else array
        for value, array in zip(model.graph.input, arrays.values(), strict=True)
    }
    assert same_answers(parts.run(empty), whole.run(empty))
    for name, array in arrays.items():
        if array.dtype.kind != "i":
            continue
        for number in (-10, -11, -21, 9, 10, 20, 2**40):
            if abs(number) > 2**31 and array.dtype != np.int64:
                continue
            changed = array.copy()
            changed.reshape(-1)[-1] = number
            batch = arrays | {name: changed}
            assert refuses(parts, batch) == refuses(whole, batch), (name, number)
    return optimized


def refuses(model: WholeModel | OptimizedModel, batch: Any) -> bool:
    try:
        model.run(batch)
    except InvalidInput:
        return True
    return False


def kinds(optimized: Optimized) -> list[str]:
    return [node.op_type for node in optimized.dense.graph]


def test_what_the_graph_joins_lies_side_by_side() -> None:
    optimized = check(
        parsed(
            """g (int64[N] item, int64[N] user, float[N, 1] x) => (float[N, 6] y)
            { u = Gather(users, user) i = Gather(items, item)
              y = Concat <axis: int = 1> (x, i, u) }""",
            items=ITEMS,
            users=USERS,
        ),
        item=[3, 4, 5],
        user=[1, 2, 0],
        x=np.ones((3, 1), np.float32),
    )

    assert [table.name for table in optimized.tables] == ["items", "users"]
    assert [lookup.output.column for lookup in optimized.lookups] == [0, 3]
    assert [(b.name, b.columns, b.side) for b in optimized.buffers] == [("ab_rows", 5, "row")]
    assert optimized.pass_through == ("x",)


def test_a_graph_that_only_joins_is_the_buffer_itself() -> None:
    optimized = check(
        parsed(
            """g (int64[N, 2] item, int64[N] user) => (float[N, 8] y)
            { u = Gather(users, user) i = Gather(items, item) f = Reshape(i, shape)
              y = Concat <axis: int = 1> (f, u) }""",
            items=ITEMS,
            users=USERS,
            shape=np.array([-1, 6]),
        ),
        item=[[3, 4], [0, 1]],
        user=[1, 2],
    )

    assert kinds(optimized) == ["Identity"]
    assert optimized.pass_through == ()


def test_a_lookup_that_is_an_output_keeps_its_name() -> None:
    optimized = check(
        parsed(
            "g (int64[N] item) => (float[N, 3] rows, float[N, 3] y) "
            "{ rows = Gather(items, item) y = Relu(rows) }",
            items=ITEMS,
        ),
        item=[3, 4, 5],
    )

    assert [value.name for value in optimized.dense.graph.outputs] == ["rows", "y"]


def test_equal_lookups_are_done_once() -> None:
    optimized = check(
        parsed(
            "g (int64[N] item) => (float[N, 3] y) "
            "{ a = Gather(items, item) b = Gather(items, item) y = Mul(a, b) }",
            items=ITEMS,
        ),
        item=[3, 4, 5],
    )

    assert len(optimized.lookups) == 1


def test_a_table_that_layers_use_as_well_stays_for_them() -> None:
    optimized = check(
        parsed(
            "g (int64[N] item) => (float[N, 20] y) "
            "{ r = Gather(items, item) t = Transpose(items) y = MatMul(r, t) }",
            items=ITEMS,
        ),
        item=[3, 4, 5],
    )

    assert len(optimized.tables) == 1
    assert "items" in optimized.dense.graph.initializers


@pytest.mark.parametrize(
    ("dtype", "onnx_type", "buffer"), [("float16", 10, "f16"), ("bfloat16", 16, "f32")]
)
def test_tables_of_short_floats(dtype: str, onnx_type: int, buffer: str) -> None:
    model = parsed(
        f"g (int64[N] item) => (float[N, 3] y) <{dtype}[20, 3] items> "
        "{ r = Gather(items, item) y = Cast <to: int = 1> (r) }"
    )
    del model.graph.input[1:], model.graph.initializer[:]
    model.graph.initializer.append(
        onnx.helper.make_tensor("items", onnx_type, [20, 3], ITEMS.reshape(-1))
    )

    optimized = check(model, item=[3, 4, 5])

    assert [each.dtype for each in optimized.buffers] == [buffer]


def test_rows_of_two_types_come_in_two_buffers() -> None:
    optimized = check(
        parsed(
            """g (int64[N] item, int64[N] user) => (float[N, 5] y)
            { h = Gather(halves, item) i = Cast <to: int = 1> (h) u = Gather(users, user)
              y = Concat <axis: int = 1> (i, u) }""",
            halves=ITEMS.astype(np.float16),
            users=USERS,
        ),
        item=[3, 4, 5],
        user=[1, 2, 0],
    )

    assert {(b.name, b.dtype) for b in optimized.buffers} == {
        ("ab_rows", "f32"),
        ("ab_rows_f16", "f16"),
    }


def test_computed_ids_whose_rows_are_on_another_axis() -> None:
    optimized = check(
        parsed(
            """g (int64[N, 4] item) => (float[4, N, 3] y)
            { turned = Transpose <perm = [1, 0]> (item) i = Mod(turned, seven)
              y = Gather(items, i) }""",
            items=ITEMS,
            seven=np.array(7),
        ),
        item=np.arange(8).reshape(2, 4),
    )

    assert optimized.prelude is not None
    assert [lookup.max_length for lookup in optimized.lookups] == [4]


def test_one_coordinate_is_one_id() -> None:
    optimized = check(
        parsed(
            "g (int64[N, 2] item) => (float[N, 2, 3] y) "
            "{ c = Unsqueeze(item, last) y = GatherND(items, c) }",
            items=ITEMS,
            last=np.array([-1]),
        ),
        item=[[3, 4], [0, 1]],
    )

    assert [lookup.max_length for lookup in optimized.lookups] == [2]


def test_ids_that_are_read_in_two_ways_do_not_disturb_each_other() -> None:
    check(
        parsed(
            """g (int64[N, 1] id) => (float[N, 7] y)
            { a = GatherND(items, id) b = GatherND(users, id) g = Gather(users, id)
              f = Reshape(g, shape) y = Concat <axis: int = 1> (a, b, f) }""",
            items=ITEMS,
            users=USERS,
            shape=np.array([-1, 2]),
        ),
        id=[[3], [4], [0]],
    )


def test_elements_of_whole_rows_are_rows() -> None:
    optimized = check(
        parsed(
            """g (int64[N] item) => (float[N, 3] y)
            { c = Unsqueeze(item, one) i = Expand(c, shape) y = GatherElements(items, i) }""",
            items=ITEMS,
            one=np.array([1]),
            shape=np.array([1, 3]),
        ),
        item=[3, 4, 5],
    )

    assert [lookup.max_length for lookup in optimized.lookups] == [1]


@pytest.mark.parametrize("width", [2, 3])
def test_elements_that_are_no_whole_rows_stay(width: int) -> None:
    optimized = check(
        parsed(
            f"g (int64[N, {width}] item) => (float[N, {width}] y) "
            "{ y = GatherElements(items, item) }",
            items=ITEMS,
        ),
        item=[[3, 4, 5][:width]] * 2,
    )

    assert optimized.lookups == ()
    assert "not proven to be whole rows" in optimized.verdicts[0].reason


def test_ids_that_elements_and_rows_are_read_by_leave_for_the_rows() -> None:
    optimized = check(
        parsed(
            """g (int64[N, 3] item) => (float[N, 12] y)
            { e = GatherElements(items, item) r = Gather(items, item) f = Reshape(r, shape)
              y = Concat <axis: int = 1> (e, f) }""",
            items=ITEMS,
            shape=np.array([-1, 9]),
        ),
        item=[[3, 4, 5], [0, 1, 2]],
    )

    assert [verdict.cut for verdict in optimized.verdicts] == [False, True]


def test_an_input_that_has_the_name_of_a_buffer_keeps_it() -> None:
    optimized = check(
        parsed(
            "g (int64[N] item, float[N, 3] ab_rows) => (float[N, 3] y) "
            "{ r = Gather(items, item) y = Add(r, ab_rows) }",
            items=ITEMS,
        ),
        item=[3, 4],
        ab_rows=np.ones((2, 3), np.float32),
    )

    assert [buffer.name for buffer in optimized.buffers] == ["ab_rows_"]


def test_parts_of_a_lookup_are_read_in_their_columns() -> None:
    check(
        parsed(
            """g (int64[N, 4] item, int64[N] user) => (float[N, 11] y)
            {
              r = Gather(items, item)
              u = Gather(users, user)
              middle = Slice(r, one, three, one)
              s = Reshape(middle, shape)
              last = Gather <axis: int = 1> (r, third)
              y = Concat <axis: int = 1> (u, s, last)
            }""",
            items=ITEMS,
            users=USERS,
            one=np.array([1]),
            three=np.array([3]),
            shape=np.array([0, 6]),
            third=np.array(3),
        ),
        item=np.arange(8).reshape(2, 4),
        user=[1, 2],
    )
