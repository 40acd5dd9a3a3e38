import gc
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.settings import BatchSettings
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import lookup_model, scale_model, write_graph
from anabranch_testing.groups import (
    Collector,
    Counts,
    MakeGroup,
    load_version,
    ticket_of,
    until_asleep,
)
from anabranch_wire.errors import Internal, InvalidInput
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec


class RaisingSink:
    def deliver(self, tickets: list[Ticket]) -> None:
        raise RuntimeError(f"{len(tickets)} answers lost")


def ids(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def test_only_the_request_at_fault_fails_in_a_merged_batch(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, lookup_model(tmp_path))
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, ids(0)))
    assert backend.entered.acquire(timeout=10)

    good = [ticket_of(served, sink, ids(i)) for i in (1, 2)]
    bad = ticket_of(served, sink, ids(77))
    for ticket in (good[0], bad, good[1]):
        group.submit(ticket)
    backend.gate.set()
    sink.wait(4)

    assert isinstance(bad.error, InvalidInput)
    assert "77" in bad.error.message
    assert "/" not in bad.error.message.replace("and/or", "")
    for value, ticket in zip((1, 2), good, strict=True):
        assert ticket.outputs is not None
        np.testing.assert_array_equal(ticket.outputs[0], [[value, value + 0.5]])


def test_a_bad_request_leaves_the_stage_fast_for_the_next(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, lookup_model(tmp_path))
    sink = Collector()

    for count, value in enumerate((9, 1, -9, 2, 4), start=1):
        group.submit(ticket_of(served, sink, ids(value)))
        sink.wait(count)

    assert [ticket.error is None for ticket in sink.tickets] == [False, True, False, True, True]


def test_one_bad_request_costs_a_large_batch_few_runs(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(batching=BatchSettings(max_rows=64, split_rows=0))
    served = load_version(group, lookup_model(tmp_path))
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, ids(0)))
    assert backend.entered.acquire(timeout=10)
    before = backend.computed

    tickets = [ticket_of(served, sink, ids(99 if i == 37 else i % 5)) for i in range(64)]
    for ticket in tickets:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(65)

    assert [i for i, ticket in enumerate(tickets) if ticket.error is not None] == [37]
    assert isinstance(tickets[37].error, InvalidInput)
    assert all(
        ticket.outputs is not None and ticket.outputs[0][0, 0] == i % 5
        for i, ticket in enumerate(tickets)
        if i != 37
    )
    assert backend.computed - before == 1 + 1 + 2 * 6
    assert counts.batches[-1] == (0, 64, 64)


def test_a_sink_that_raises_ends_no_executor(
    make_group: MakeGroup,
    backend: GatedBackend,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    good, bad = Collector(), RaisingSink()
    x = np.ones((1, 4), np.float32)
    backend.hold()
    group.submit(ticket_of(served, bad, x))
    assert backend.entered.acquire(timeout=10)

    group.submit(ticket_of(served, bad, x, deadline_s=-1.0))
    group.submit(ticket_of(served, bad, x))
    group.submit(ticket_of(served, good, x))
    backend.gate.set()
    (done,) = good.wait(1)

    assert done.error is None
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events == ["delivery_error"] * 3


def test_a_failed_request_is_freed_with_its_ticket(
    make_group: MakeGroup, counts: Counts, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, lookup_model(tmp_path))
    sink = Collector()
    array = ids(99)
    body = weakref.ref(array)

    gc.disable()
    try:
        group.submit(ticket_of(served, sink, array))
        (failed,) = sink.wait(1)
        until_asleep(group)
        assert isinstance(failed.error, InvalidInput)
        del array, failed
        sink.tickets.clear()
        freed = body() is None
    finally:
        gc.enable()

    assert freed


def test_an_executor_that_sleeps_holds_no_request(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    array = np.ones((1, 4), np.float32)
    body = weakref.ref(array)

    group.submit(ticket_of(served, sink, array))
    sink.wait(1)
    until_asleep(group)
    del array
    sink.tickets.clear()

    assert body() is None


def test_a_fault_of_the_backend_is_internal_and_over_with_its_batch(
    make_group: MakeGroup,
    backend: GatedBackend,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    x = np.ones((1, 4), np.float32)

    backend.fault = ZeroDivisionError("in the backend")
    group.submit(ticket_of(served, sink, x))
    (failed,) = sink.wait(1)
    backend.fault = None
    group.submit(ticket_of(served, sink, x))
    (_, done) = sink.wait(2)

    assert isinstance(failed.error, Internal)
    assert failed.error.message == "the executor failed"
    assert "in the backend" in caplog.text
    assert done.error is None


def test_requests_without_rows_run_as_they_came_where_nothing_may_be_padded(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    path = write_graph(tmp_path, "turned (float[3, N] x) => (float[3, N] y) { y = Relu(x) }")
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (3, -1)),),
        (TensorSpec("y", "FP32", (3, -1)),),
        RowLayout(True, 1, (1,), (1,)),
    )
    group = make_group()
    served = load_version(group, model)
    sink = Collector()

    group.submit(ticket_of(served, sink, np.zeros((3, 0), np.float32)))
    (done,) = sink.wait(1)

    assert done.error is None
    assert done.outputs is not None
    assert done.outputs[0].shape == (3, 0)


def test_requests_without_rows_are_answered_where_the_graph_needs_one(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    path = write_graph(
        tmp_path,
        "pooled (float[N, 4] x) => (float[N, 1] y) { y = ReduceMax<axes = [1]>(x) }",
        opset=13,
    )
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("y", "FP32", (-1, 1)),),
        RowLayout(True, 2, (0,), (0,)),
    )
    group = make_group()
    served = load_version(group, model)
    sink = Collector()

    group.submit(ticket_of(served, sink, np.zeros((0, 4), np.float32)))
    (done,) = sink.wait(1)

    assert done.error is None
    assert done.outputs is not None
    assert done.outputs[0].shape == (0, 1)


def test_a_graph_that_picks_rows_by_their_data_never_runs_without_a_row_to_pick(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    # The sum of the picked rows shows which rows ran: it is the same for every row of a batch.
    path = write_graph(
        tmp_path,
        "picks (float[N, 4] x) => (float[N, 1] y) "
        "<float[4, 1] w = {1.0, 0.0, 0.0, 0.0}, int64[1] rows = {0}> "
        "{ v = MatMul(x, w) \n s = ReduceSum(v, rows) \n z = Sub(v, v) \n y = Add(z, s) }",
    )
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("y", "FP32", (-1, 1)),),
        RowLayout(True, 1, (0,), (0,), splittable=False),
    )
    group = make_group(2, BatchSettings(max_rows=16, split_rows=2))
    examples = [{"x": np.full((rows, 4), 100, np.float32)} for rows in (3, 2)]
    served = group.load(Snapshot("m", 1), model, examples, warm_rounds=1)
    sink = Collector()

    group.submit(ticket_of(served, sink, np.full((1, 4), 1, np.float32)))
    sink.wait(1)
    group.submit(ticket_of(served, sink, np.full((8, 4), 1, np.float32)))
    one, many = sink.wait(2)

    assert one.outputs is not None
    assert many.outputs is not None
    assert one.outputs[0].tolist() == [[201.0]]
    assert many.outputs[0].tolist() == [[208.0]] * 8


def test_an_output_of_another_number_of_rows_is_never_handed_out(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    path = write_graph(
        tmp_path, "first (float[N, 2] x) => (float[M, 2] y) { y = Unique <axis = 0> (x) }"
    )
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 2)),),
        (TensorSpec("y", "FP32", (-1, 2)),),
        RowLayout(True, 1, (0,), (0,)),
    )
    group = make_group()
    served = load_version(group, model)
    sink = Collector()
    ones, twos = np.ones((1, 2), np.float32), np.full((1, 2), 2, np.float32)
    backend.hold()
    group.submit(ticket_of(served, sink, ones))
    assert backend.entered.acquire(timeout=10)

    same = [ticket_of(served, sink, array) for array in (twos, ones, ones)]
    for ticket in same:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(4)

    # Three rows gave two; alone each gives its own.
    for ticket, array in zip(same, (twos, ones, ones), strict=True):
        assert ticket.outputs is not None
        np.testing.assert_array_equal(ticket.outputs[0], array)


def test_an_output_without_axes_stands_beside_those_that_are_asked_for(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    path = write_graph(
        tmp_path,
        "total (float[N, 4] x) => (float[N, 4] y, float s) "
        "{ y = Neg(x) \n s = ReduceSum<keepdims = 0>(x) }",
    )
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("y", "FP32", (-1, 4)), TensorSpec("s", "FP32", ())),
        RowLayout(False, 1, (0,), (0, None), "s is one sum over all rows"),
    )
    served = load_version(make_group(), model)
    sink = Collector()
    x = np.ones((2, 4), np.float32)

    for outputs in ((0,), (1,), (1, 0), ()):
        request = ScoreRequest((x,), 2, outputs, time.monotonic() + 30)
        served.group.submit(Ticket(request, served, sink))
    answers = sink.wait(4)

    assert [answer.error for answer in answers] == [None] * 4
    shapes = [[array.shape for array in answer.outputs or ()] for answer in answers]
    assert shapes == [[(2, 4)], [()], [(), (2, 4)], [(2, 4), ()]]
