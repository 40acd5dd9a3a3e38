"""Ids as the plan can say them: elements of inputs, cast and shifted; all else is for a prelude."""

from typing import Any

import numpy as np
import pytest

from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.placement.id_grids import IdRun, joined_runs
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_testing.optimized_models import (
    OptimizedModel,
    WholeModel,
    cut_all,
    parsed,
    same_answers,
)
from anabranch_wire.lookups import Lookup

TABLE = np.random.default_rng(0).random((40, 3)).astype(np.float32)
INPUTS = "int64[N] id, int64[N, 3] fields, float[N, 5] packed, double[N, 2] wide, int32[N, 2] small"


def optimised(body: str, outputs: str = "float[A, B, C] y", **constants: Any) -> Optimized:
    """Optimise a graph, after a look whether it answers as before."""
    numbers: Any = {name: np.array(array, np.int64) for name, array in constants.items()}
    model = parsed(f"g ({INPUTS}) => ({outputs}) {{ {body} }}", t=TABLE, **numbers)
    optimized = cut_all(model)
    whole, parts = WholeModel(model), OptimizedModel(optimized)
    rng = np.random.default_rng(1)
    for rows in (1, 2, 5, 7):
        batch: Any = {
            "id": rng.integers(0, 9, rows),
            "fields": rng.integers(0, 9, (rows, 3)),
            "packed": (rng.random((rows, 5)) * 9).astype(np.float32),
            "wide": rng.random((rows, 2)) * 9,
            "small": rng.integers(0, 9, (rows, 2)).astype(np.int32),
        }
        used = {value.name for value in model.graph.input}
        batch = {name: array for name, array in batch.items() if name in used}
        assert same_answers(parts.run(batch), whole.run(batch))
    return optimized


def ids(lookup: Lookup) -> tuple[Any, ...]:
    return (lookup.ids.input, lookup.ids.columns, lookup.ids.cast, lookup.ids.add)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Gather(t, fields)", [("fields", None, "none", 0)]),
        ("i = Slice(fields, one, three, one) y = Gather(t, i)", [("fields", (1, 3), "none", 0)]),
        (
            "i = Slice(packed, one, three, one) c = Cast <to: int = 7> (i) y = Gather(t, c)",
            [("packed", (1, 3), "truncate", 0)],
        ),
        ("c = Cast <to: int = 7> (wide) y = Gather(t, c)", [("wide", None, "truncate", 0)]),
        ("c = Cast <to: int = 6> (packed) y = Gather(t, c)", [("packed", None, "truncate", 0)]),
        (
            "c = Cast <to: int = 11> (packed) d = Cast <to: int = 7> (c) y = Gather(t, d)",
            [("packed", None, "truncate", 0)],
        ),
        ("c = Cast <to: int = 7> (small) y = Gather(t, c)", [("small", None, "none", 0)]),
        (
            "i = Gather <axis: int = 1> (fields, swap) y = Gather(t, i)",
            [("fields", (2, 3), "none", 0), ("fields", (0, 1), "none", 0)],
        ),
        (
            "i = Add(fields, offsets) y = Gather(t, i)",
            [("fields", (n, n + 1), "none", 10 * n) for n in range(3)],
        ),
        (
            "i = Sub(fields, one) y = Gather(t, i)",
            [("fields", None, "none", -1)],
        ),
        (
            "a = Concat <axis: int = 1> (fields, fields) y = Gather(t, a)",
            [("fields", None, "none", 0)] * 2,
        ),
        (
            """a = Transpose <perm = [1, 0]> (fields) r = Gather(t, a)
            y = Transpose <perm = [1, 0, 2]> (r)""",
            [("fields", None, "none", 0)],
        ),
        (
            "a = Reshape(fields, flat) r = Gather(t, a) y = Reshape(r, back)",
            [("fields", None, "none", 0)],
        ),
        (
            "u = Unsqueeze(id, one) e = Expand(u, four) y = Gather(t, e)",
            [("id", (0, 1), "none", 0)] * 4,
        ),
    ],
)
def test_the_plan_says_what_only_moves(body: str, expected: list[tuple[Any, ...]]) -> None:
    optimized = optimised(
        body, one=[1], three=[3], swap=[2, 0], offsets=[[0, 10, 20]], flat=[-1], back=[-1, 3, 3],
        four=[1, 4],
    )  # fmt: skip

    assert optimized.prelude is None
    found = [ids(lookup) for lookup in optimized.lookups]
    whole = {"id": 1, "fields": 3, "packed": 5, "wide": 2, "small": 2}
    wanted = [
        (name, None if columns == (0, whole[name]) else columns, cast, add)
        for name, columns, cast, add in expected
    ]
    assert found == wanted


@pytest.mark.parametrize(
    "body",
    [
        "i = Mod(fields, seven) y = Gather(t, i)",
        "i = Mul(fields, one) y = Gather(t, i)",
        "u = Unsqueeze(id, one) i = Add(fields, u) y = Gather(t, i)",
        "c = Cast <to: int = 6> (fields) y = Gather(t, c)",
        "c = Cast <to: int = 10> (packed) d = Cast <to: int = 7> (c) y = Gather(t, d)",
        "c = Cast <to: int = 1> (wide) d = Cast <to: int = 7> (c) y = Gather(t, d)",
        "c = Cast <to: int = 9> (fields) d = Cast <to: int = 7> (c) y = Gather(t, d)",
        "f = Floor(packed) d = Cast <to: int = 7> (f) y = Gather(t, d)",
    ],
)
def test_other_arithmetic_goes_to_the_prelude(body: str) -> None:
    optimized = optimised(body, seven=7, one=[1])

    assert optimized.prelude is not None
    (lookup,) = optimized.lookups
    assert lookup.ids.input == "ab_ids_0"


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint32", "uint64", "float16"])
def test_types_that_the_store_reads_no_ids_from_go_to_the_prelude(kind: str) -> None:
    model = parsed(
        f"g ({kind}[N] id) => (float[N, 3] y) {{ i = Cast <to: int = 7> (id) y = Gather(t, i) }}",
        t=TABLE,
    )

    optimized = cut_all(model)

    assert optimized.prelude is not None
    batch = {"id": np.array([3, 0, 9]).astype(kind)}
    assert same_answers(OptimizedModel(optimized).run(batch), WholeModel(model).run(batch))


def test_ids_that_all_rows_share_are_read_once() -> None:
    model = parsed(
        "g (int64[2] ids, float[N, 1] x) => (float[N, A] y) "
        "{ r = Gather(t, ids) f = Reshape(r, flat) y = Add(x, f) }",
        t=TABLE,
        flat=np.array([1, 6]),
    )

    optimized = cut_all(model)

    assert [buffer.side for buffer in optimized.buffers] == ["user"]
    batch = {"ids": np.array([4, 1]), "x": np.ones((3, 1), np.float32)}
    assert same_answers(OptimizedModel(optimized).run(batch), WholeModel(model).run(batch))


def test_ids_of_rows_and_of_all_rows_together_are_not_cut_wrongly() -> None:
    model = parsed(
        """g (int64[2] all, int64[N, 1] own) => (float[N, 3, 3] y)
        {
          n = Shape <end: int = 1> (own)
          shape = Concat <axis: int = 0> (n, two)
          e = Expand(all, shape)
          i = Concat <axis: int = 1> (own, e)
          y = Gather(t, i)
        }""",
        t=TABLE,
        two=np.array([2]),
    )

    optimized = cut_all(model)

    batch = {"all": np.array([4, 1]), "own": np.array([[3], [2], [9]])}
    whole = WholeModel(model).run(batch)
    assert same_answers(OptimizedModel(optimized).run(batch), whole)


def test_an_axis_that_counts_something_else_is_not_taken_for_rows() -> None:
    model = parsed(
        "g (int64[M] ids, float[N, 1] x) => (float[M, 3] y, float[N, 1] z) "
        "{ y = Gather(t, ids) z = Relu(x) }",
        t=TABLE,
    )

    optimized = cut_all(model, axes={"ids": InputAxis("none"), "x": InputAxis("rows")})

    assert optimized.lookups == ()
    assert [verdict.cut for verdict in optimized.verdicts] == [False]


def test_a_sequence_of_any_length_stays() -> None:
    model = parsed("g (int64[N, L] ids) => (float[N, L, 3] y) { y = Gather(t, ids) }", t=TABLE)

    (verdict,) = cut_all(model).verdicts

    assert "the number of its ids varies from request to request" in verdict.reason


def test_ids_of_five_axes_are_followed() -> None:
    model = parsed(
        "g (int64[N, 2, 1, 2, 2] ids) => (float[N, 2, 1, 2, 2, 3] y) { y = Gather(t, ids) }",
        t=TABLE,
    )

    optimized = cut_all(model)

    assert [lookup.max_length for lookup in optimized.lookups] == [8]
    batch = {"ids": np.arange(24).reshape(3, 2, 1, 2, 2)}
    assert same_answers(OptimizedModel(optimized).run(batch), WholeModel(model).run(batch))


def test_neighbours_are_one_run() -> None:
    runs = [IdRun("x", (n, n + 1)) for n in (3, 4, 5, 7)]

    assert joined_runs(runs) == (IdRun("x", (3, 6)), IdRun("x", (7, 8)))
    assert joined_runs([IdRun("x", (0, 1)), IdRun("x", (1, 2), add=3)]) == (
        IdRun("x", (0, 1)),
        IdRun("x", (1, 2), add=3),
    )
