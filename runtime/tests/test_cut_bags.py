"""Bags of cut models: rows become one in the lookup, weighted by an input or by a prelude."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.cut_engines import CutBinding, build_engine
from anabranch_runtime.cut_models import USER_INDEX, cut_model
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_batch, stage_request
from anabranch_runtime.models import DenseModel, RowLayout, part_model
from anabranch_runtime.store import StoreWriter
from anabranch_testing.cut_graphs import ITEMS, cut_plan, cut_store, view_of_store
from anabranch_testing.graphs import write_graph
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Ids, Lookup, Offsets, Output, Side, Values
from anabranch_wire.plan import Buffer, Graphs, Plan
from anabranch_wire.tensors import TensorSpec

INPUTS = (
    TensorSpec("ids", "INT64", (-1, 3)),
    TensorSpec("w", "FP32", (-1, 5)),
    TensorSpec("x", "FP32", (-1, 1)),
)
WEIGHTS = {
    "none": None,
    "an input": Values(input="w", columns=(0, 3)),
    "columns": Values(input="w", columns=(2, 5)),
    "a prelude": Values(input="ab_weights_0"),
}
"""What weighs the ids of a bag. A prelude says: an id of 0 does not count, others count twice."""
HOLDERS = ("ids", "w")
Combiner = Literal["sum", "mean", "max"]


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return cut_store(tmp_path / "store")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def bag_model(
    folder: Path, combiner: Combiner, weights: Values | None, *, users: Sequence[str] = ()
) -> DenseModel:
    """Write a model that answers x and the pooled row of items."""
    of_prelude = weights is not None and weights.input == "ab_weights_0"
    side: Side = "user" if "ids" in users else "row"
    prelude = part_model(
        write_graph(
            folder / "prelude",
            "weights (int64[N, 3] ids) => (float[N, 3] ab_weights_0) "
            "<int64 zero = {0}, float two = {2.0}> { padded = Equal(ids, zero) \n"
            " kept = Not(padded) \n ones = Cast <to: int = 1> (kept) \n"
            " ab_weights_0 = Mul(ones, two) }",
        ),
        INPUTS[:1],
        (TensorSpec("ab_weights_0", "FP32", (-1, 3)),),
    )
    x, rows = INPUTS[2], TensorSpec("ab_rows", "FP32", (-1, 2))
    outputs = (TensorSpec("y", "FP32", (-1, 3)),)
    once = TensorSpec("ab_once_0", "FP32", (-1, 2))
    if side == "user":
        text = (
            f"dense (float[N, 1] x, float[U, 2] ab_once_0, int64[N] {USER_INDEX}) => "
            f"(float[N, 3] y) {{ own = Gather(ab_once_0, {USER_INDEX}) \n"
            " y = Concat <axis: int = 1> (x, own) }"
        )
        taken: tuple[TensorSpec, ...] = (x, once, TensorSpec(USER_INDEX, "INT64", (-1,)))
    else:
        text = (
            "dense (float[N, 1] x, float[N, 2] ab_rows) => (float[N, 3] y) "
            "{ y = Concat <axis: int = 1> (x, ab_rows) }"
        )
        taken = (x, rows)
    dense = part_model(write_graph(folder / "dense", text), taken, outputs)
    user = None
    if side == "user":
        path = write_graph(
            folder / "user",
            "user (float[U, 2] ab_rows) => (float[U, 2] ab_once_0) "
            "{ ab_once_0 = Identity(ab_rows) }",
        )
        user = part_model(path, (rows,), (once,))
    lookup = Lookup(
        table=0, side=side, ids=Ids(input="ids"), combiner=combiner, weights=weights, max_length=3,
        output=Output(buffer=0, column=0),
    )  # fmt: skip
    known = cut_plan()
    plan = Plan(
        format=1,
        source=known.source,
        structure_hash=known.structure_hash,
        graphs=Graphs(
            dense="dense.onnx",
            prelude="prelude.onnx" if of_prelude else None,
            user=None if user is None else "user.onnx",
        ),
        tables=known.tables,
        buffers=(Buffer(name="ab_rows", side=side, dtype="f32", columns=2),),
        lookups=(lookup,),
        pass_through=("x",),
        weights={},
    )
    cut = cut_model(plan, INPUTS, dense, prelude if of_prelude else None, user, users)
    layout = RowLayout(True, 1, (0,) * len(INPUTS), (0,))
    return DenseModel(dense.path, INPUTS, outputs, layout, cut=cut)


def request(rows: int, seed: int) -> tuple[NDArray[Any], ...]:
    """Make up ids with an empty bag first, repeated ids last, weights of both signs, and x."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, ITEMS, (rows, 3))
    ids[0], ids[-1] = 0, 7
    return ids, rng.standard_normal((rows, 5), np.float32), np.ones((rows, 1), np.float32)


def pooled(
    inputs: Sequence[NDArray[Any]], combiner: Combiner, weights: Values | None
) -> NDArray[np.float64]:
    """Return what the model answers, row by row."""
    lines = []
    for ids, w, x in zip(*inputs, strict=True):
        rows = np.array([[i % ITEMS, i % ITEMS + 0.5] for i in ids.tolist()])
        factors = np.ones(3)
        if weights is not None and weights.columns is not None:
            factors = w[slice(*weights.columns)].astype(np.float64)
        elif weights is not None:
            factors = 2.0 * (ids != 0)
        found = {
            "max": rows.max(axis=0),
            "sum": factors @ rows,
            "mean": factors @ rows / (factors.sum() or 1),
        }[combiner]
        lines.append([*x, *found])
    return np.array(lines)


def bound(stack: ExitStack, model: DenseModel) -> CutBinding:
    engine = stack.enter_context(closing(build_engine(OrtCpuBackend(), model)))
    binding = stack.enter_context(closing(engine.bind()))
    assert isinstance(binding, CutBinding)
    return binding


def run(
    binding: CutBinding,
    source: CutSource,
    requests: Sequence[tuple[NDArray[Any], ...]],
) -> NDArray[Any]:
    parts = [(inputs, len(inputs[2])) for inputs in requests]
    rows = sum(count for _, count in parts)
    stage = stage_batch(binding, parts, (0,) * len(INPUTS), rows, None)
    assert isinstance(stage, CutStage)
    stage.look_up(source)
    stage.enqueue()
    return stage.outputs()[0].copy()


@pytest.mark.parametrize(
    ("combiner", "weights"),
    [
        *((combiner, name) for combiner in ("sum", "mean", "max") for name in ("none",)),
        *((combiner, name) for combiner in ("sum", "mean") for name in list(WEIGHTS)[1:]),
    ],
)
def test_rows_of_a_bag_become_one(
    tmp_path: Path, writer: StoreWriter, stack: ExitStack, combiner: Combiner, weights: str
) -> None:
    model = bag_model(tmp_path, combiner, WEIGHTS[weights])
    assert model.cut is not None
    binding = bound(stack, model)
    source = CutSource.open(model.cut, view_of_store(writer))

    for seed in range(4):  # the same stage holds other numbers each time
        for rows in (1, 2, 9):
            inputs = request(rows, seed)
            expected = pooled(inputs, combiner, WEIGHTS[weights])
            # Weights of both signs leave a small divisor, of which f32 knows less.
            assert np.allclose(run(binding, source, [inputs]), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("weights", ["none", "an input", "columns"])
def test_bags_of_a_user_become_one_once(
    tmp_path: Path, writer: StoreWriter, stack: ExitStack, weights: str
) -> None:
    model = bag_model(tmp_path, "sum", WEIGHTS[weights], users=HOLDERS)
    assert model.cut is not None
    binding = bound(stack, model)
    source = CutSource.open(model.cut, view_of_store(writer))
    requests = []
    for seed, rows in ((1, 4), (2, 1), (3, 3)):
        ids, w, x = request(rows, seed)
        one = [np.broadcast_to(array[:1], array.shape) for array in (ids, w)]
        requests.append((*one, x))

    found = run(binding, source, requests)

    joined = [np.concatenate(arrays) for arrays in zip(*requests, strict=True)]
    expected = pooled(joined, "sum", WEIGHTS[weights])
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert binding.counts()[0].tolist() == [3 * len(requests)]


def test_weights_of_a_user_count_for_each_of_its_rows(
    tmp_path: Path, writer: StoreWriter, stack: ExitStack
) -> None:
    folder = tmp_path / "model"
    model = bag_model(folder, "sum", WEIGHTS["columns"])
    assert model.cut is not None
    user = part_model(
        write_graph(folder / "user", "u (float[U, 5] w) => (float[U, 5] v) { v = Identity(w) }"),
        (INPUTS[1],),
        (TensorSpec("v", "FP32", (-1, 5)),),
    )
    text = (
        f"d (float[N, 1] x, float[N, 2] ab_rows, float[U, 5] v, int64[N] {USER_INDEX}) => "
        f"(float[N, 3] y) {{ y = Concat <axis: int = 1> (x, ab_rows) }}"
    )
    taken = (INPUTS[2], TensorSpec("ab_rows", "FP32", (-1, 2)), *user.outputs)
    index = TensorSpec(USER_INDEX, "INT64", (-1,))
    dense = part_model(write_graph(folder / "more", text), (*taken, index), model.outputs)
    known = model.cut.plan
    plan = Plan(
        format=1,
        source=known.source,
        structure_hash=known.structure_hash,
        graphs=Graphs(dense="dense.onnx", user="user.onnx"),
        tables=known.tables,
        buffers=known.buffers,
        lookups=known.lookups,
        pass_through=("x",),
        weights={},
    )
    cut = cut_model(plan, INPUTS, dense, None, user, ("w",))
    binding = bound(stack, DenseModel(dense.path, INPUTS, model.outputs, model.rows, cut=cut))
    source = CutSource.open(cut, view_of_store(writer))
    requests = []
    for seed, rows in ((1, 4), (2, 3)):
        ids, w, x = request(rows, seed)
        requests.append((ids, np.broadcast_to(w[:1], w.shape), x))

    found = run(binding, source, requests)

    joined = [np.concatenate(arrays) for arrays in zip(*requests, strict=True)]
    expected = pooled(joined, "sum", WEIGHTS["columns"])
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_an_id_outside_of_the_table_is_refused_whatever_it_weighs(
    tmp_path: Path, writer: StoreWriter, stack: ExitStack
) -> None:
    model = bag_model(tmp_path, "sum", WEIGHTS["an input"])
    assert model.cut is not None
    source = CutSource.open(model.cut, view_of_store(writer))
    ids, w, x = request(2, 1)
    ids[1, 2], w[1, 2] = ITEMS, 0

    with pytest.raises(InvalidInput, match=r"ids.*\b20\b"):
        run(bound(stack, model), source, [(ids, w, x)])


def ragged_model(folder: Path, *, weighted: bool) -> DenseModel:
    """Write a model that answers x and the sum of the items of each bag."""
    inputs = (
        TensorSpec("ids", "INT64", (-1,)),
        TensorSpec("w", "FP32", (-1,)),
        TensorSpec("starts", "INT64", (-1,)),
        TensorSpec("x", "FP32", (-1, 1)),
    )
    whole = bag_model(folder, "sum", None)
    assert whole.cut is not None
    known = whole.cut.plan
    lookup = Lookup(
        table=0, side="row", ids=Ids(input="ids"), combiner="sum", lengths=Offsets(input="starts"),
        weights=Values(input="w") if weighted else None, max_length=1000,
        output=Output(buffer=0, column=0),
    )  # fmt: skip
    plan = Plan(
        format=1,
        source=known.source,
        structure_hash=known.structure_hash,
        graphs=known.graphs,
        tables=known.tables,
        buffers=known.buffers,
        lookups=(lookup,),
        pass_through=("x",),
        weights={},
    )
    cut = cut_model(plan, inputs, whole.cut.dense)
    layout = RowLayout(False, 1, (None, None, None, 0), (0,))
    return DenseModel(whole.path, inputs, whole.outputs, layout, cut=cut)


@pytest.mark.parametrize("with_end", [False, True], ids=["starts", "starts and end"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_bags_of_varying_length_become_one_row_each(
    tmp_path: Path, writer: StoreWriter, stack: ExitStack, weighted: bool, with_end: bool
) -> None:
    model = ragged_model(tmp_path, weighted=weighted)
    assert model.cut is not None
    binding = bound(stack, model)
    source = CutSource.open(model.cut, view_of_store(writer))
    rng = np.random.default_rng(4)

    for lengths in ((2, 0, 5), (0, 1, 0, 0), (3,), (0, 0), (5, 0, 2)):
        total = sum(lengths)
        ids, w = rng.integers(0, ITEMS, total), rng.standard_normal(total, np.float32)
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        x = np.ones((len(lengths), 1), np.float32)
        starts = bounds if with_end else bounds[:-1]

        stage = stage_request(binding, (ids, w, starts, x), len(lengths))
        assert isinstance(stage, CutStage)
        stage.look_up(source)
        stage.enqueue()

        factors = w if weighted else np.ones(total)
        rows = (ids[:, None] + np.array([0, 0.5])) * factors[:, None]
        sums = [rows[begin:end].sum(axis=0) for begin, end in pairwise(bounds.tolist())]
        expected = np.concatenate([x, np.stack(sums)], axis=1)
        assert np.allclose(stage.outputs()[0], expected, rtol=1e-5, atol=1e-4)
