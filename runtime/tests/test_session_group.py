import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.settings import BatchSettings, QueueSettings
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
from anabranch_wire.errors import (
    Cancelled,
    DeadlineExceeded,
    Overloaded,
    Unavailable,
)
from anabranch_wire.tensors import TensorSpec


def rows(*values: float) -> NDArray[np.float32]:
    array = np.zeros((len(values), 4), np.float32)
    array[:, 0] = values
    return array


def test_scores_one_request(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    group.submit(ticket_of(served, sink, np.array([[1, 2, 3, 4]], np.float32)))
    (done,) = sink.wait(1)

    assert done.error is None
    assert done.outputs is not None
    np.testing.assert_array_equal(done.outputs[0], [[4321.0]])
    assert done.submitted <= done.started <= done.finished


def test_an_executor_takes_what_queued_up_while_it_was_busy(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()

    group.submit(ticket_of(served, sink, rows(1)))
    assert backend.entered.acquire(timeout=10)
    for value in (2, 3, 4):
        group.submit(ticket_of(served, sink, rows(value, value)))
    assert group.queue_depth() == (3, 6)
    assert group.in_flight() == 4
    backend.gate.set()
    done = sink.wait(4)

    assert counts.batches == [(0, 1, 1), (0, 6, 3)]
    assert sink.calls == 2
    for ticket in done:
        assert ticket.outputs is not None
        np.testing.assert_array_equal(ticket.outputs[0][:, 0], ticket.request.inputs[0][:, 0])


def test_answers_are_no_views_of_staging(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    for value in range(50):
        group.submit(ticket_of(served, sink, rows(value)))
        sink.wait(value + 1)

    for value, ticket in enumerate(sink.tickets):
        assert ticket.outputs is not None
        assert ticket.outputs[0].base is None
        assert ticket.outputs[0][0, 0] == value


def test_large_requests_are_cut_over_idle_executors(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, split_rows=10))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)
    backend.hold()

    values = [float(value) for value in range(35)]
    group.submit(ticket_of(served, sink, rows(*values)))
    for _ in range(3):
        assert backend.entered.acquire(timeout=10)
    assert group.in_flight() == 3
    backend.gate.set()
    (done,) = sink.wait(1)

    assert done.outputs is not None
    np.testing.assert_array_equal(done.outputs[0][:, 0], values)
    assert sorted(executor for executor, _, _ in counts.batches) == [0, 1, 2]
    assert sum(count for _, count, _ in counts.batches) == 35
    until_asleep(group)
    assert group.in_flight() == 0


def test_nothing_is_cut_while_no_other_executor_is_idle(
    make_group: MakeGroup, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(1, BatchSettings(max_rows=16, split_rows=10))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    group.submit(ticket_of(served, sink, rows(*range(100))))
    sink.wait(1)

    assert counts.batches == [(0, 100, 1)]


def test_expired_and_cancelled_work_is_dropped_before_compute(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, rows(1)))
    assert backend.entered.acquire(timeout=10)

    late = ticket_of(served, sink, rows(2), deadline_s=-0.001)
    gone = ticket_of(served, sink, rows(3))
    group.submit(late)
    group.submit(gone)
    gone.cancelled = True
    backend.gate.set()
    sink.wait(3)

    assert isinstance(late.error, DeadlineExceeded)
    assert isinstance(gone.error, Cancelled)
    assert counts.drop_reasons == ["expired", "cancelled"]
    assert counts.batches == [(0, 1, 1)]


def test_a_full_queue_refuses(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(queue=QueueSettings(max_requests=2, max_rows=5))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, rows(0)))
    assert backend.entered.acquire(timeout=10)

    group.submit(ticket_of(served, sink, rows(1)))
    with pytest.raises(Overloaded) as too_many_rows:
        group.submit(ticket_of(served, sink, rows(*range(5))))
    group.submit(ticket_of(served, sink, rows(2)))
    with pytest.raises(Overloaded):
        group.submit(ticket_of(served, sink, rows(3)))
    backend.gate.set()

    assert too_many_rows.value.retry_after_s > 0
    assert len(sink.wait(3)) == 3
    assert counts.shed_reasons == ["queue_full", "queue_full"]


def test_small_requests_are_padded_where_the_graph_needs_two_rows(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    path = write_graph(
        tmp_path,
        "squeezes (float[N, 4] x) => (float[N] y) "
        "<float[4, 1] w = {1.0, 1.0, 1.0, 1.0}> { m = MatMul(x, w) \n y = Squeeze(m) }",
    )
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("y", "FP32", (-1,)),),
        RowLayout(True, 2, (0,), (0,)),
    )
    group = make_group()
    served = load_version(group, model)
    sink = Collector()

    group.submit(ticket_of(served, sink, rows(5)))
    (done,) = sink.wait(1)

    assert done.error is None
    assert done.outputs is not None
    np.testing.assert_array_equal(done.outputs[0], [5.0])


def test_two_versions_share_the_executors_and_never_a_batch(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group()
    one = load_version(group, scale_model(tmp_path / "1"), 1)
    two = load_version(group, lookup_model(tmp_path / "2"), 2)
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(one, sink, rows(0)))
    assert backend.entered.acquire(timeout=10)

    for value in (1, 2):
        group.submit(ticket_of(one, sink, rows(value)))
        group.submit(ticket_of(two, sink, np.array([value], np.int64)))
    backend.gate.set()
    done = sink.wait(5)

    assert all(ticket.error is None for ticket in done)
    assert [requests for _, _, requests in counts.batches] == [1, 2, 2]


def test_a_delay_fills_batches_of_an_idle_executor(
    make_group: MakeGroup, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(batching=BatchSettings(max_rows=4, max_delay_s=5.0, split_rows=0))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    begin = time.monotonic()
    for value in range(4):
        group.submit(ticket_of(served, sink, rows(value)))
    sink.wait(4)

    assert time.monotonic() - begin < 4.0
    assert counts.batches == [(0, 4, 4)]


def test_a_delay_ends_without_company(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group(batching=BatchSettings(max_rows=4, max_delay_s=0.02, split_rows=0))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    group.submit(ticket_of(served, sink, rows(1)))
    (done,) = sink.wait(1)

    assert done.started - done.submitted >= 0.015


def test_a_delay_holds_for_what_a_full_batch_left_behind(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group(3, BatchSettings(max_rows=4, max_delay_s=0.2, split_rows=0))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)
    backend.hold()

    group.submit(ticket_of(served, sink, rows(1, 2, 3)))
    until_asleep(group)
    group.submit(ticket_of(served, sink, rows(1, 2, 3)))

    for _ in range(2):
        assert backend.entered.acquire(timeout=10)


def test_a_delay_holds_beside_parts_of_a_large_request(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, max_delay_s=0.2, split_rows=10))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)
    backend.hold()

    group.submit(ticket_of(served, sink, rows(1)))
    until_asleep(group)
    group.submit(ticket_of(served, sink, rows(*range(20))))

    for _ in range(3):
        assert backend.entered.acquire(timeout=10)


def test_closing_computes_what_waits_and_refuses_more(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()
    for value in range(3):
        group.submit(ticket_of(served, sink, rows(value)))
    closing = threading.Thread(target=group.close, args=(10.0,))
    closing.start()
    while True:
        try:
            group.submit(ticket_of(served, sink, rows(9)))
        except Unavailable:
            break
        time.sleep(0.001)
    backend.gate.set()
    closing.join()

    assert all(ticket.error is None for ticket in sink.tickets[:3])


def test_many_threads_lose_and_double_nothing(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group(
        4, BatchSettings(max_rows=8, split_rows=3), QueueSettings(max_requests=100_000)
    )
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    each = 300

    def send(worker: int) -> None:
        for number in range(each):
            value = float(worker * each + number)
            group.submit(ticket_of(served, sink, rows(*[value] * (1 + number % 9))))

    threads = [threading.Thread(target=send, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = sink.wait(6 * each)

    assert len({id(ticket) for ticket in done}) == 6 * each
    for ticket in done:
        assert ticket.outputs is not None
        np.testing.assert_array_equal(ticket.outputs[0][:, 0], ticket.request.inputs[0][:, 0])


def test_max_rows_and_split_rows_are_measured(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group(batching=BatchSettings())

    served = load_version(group, scale_model(tmp_path))

    assert served.mergeable
    assert served.max_rows >= 8
    assert served.split_rows > 0


def test_rows_that_are_not_independent_are_left_alone(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    path = write_graph(
        tmp_path, "mix (float[N, 4] x) => (float[N, 4] y) { y = Softmax<axis = 0>(x) }"
    )
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("y", "FP32", (-1, 4)),),
        RowLayout(False, 1, (0,), (0,), "Softmax runs over the rows"),
    )
    group = make_group(2, BatchSettings(max_rows=16, split_rows=2))
    served = load_version(group, model)
    sink = Collector()
    until_asleep(group)
    backend.hold()

    for _ in range(3):
        group.submit(ticket_of(served, sink, rows(*range(8))))
    backend.gate.set()
    sink.wait(3)

    assert [(count, requests) for _, count, requests in counts.batches] == [(8, 1)] * 3


@pytest.mark.parametrize(("width", "uniform"), [("4", True), ("K", False)])
def test_a_version_knows_whether_its_requests_can_differ_in_shape(
    make_group: MakeGroup, tmp_path: Path, width: str, uniform: bool
) -> None:
    path = write_graph(
        tmp_path, f"same (float[N, {width}] x) => (float[N, {width}] y) {{ y = Relu(x) }}"
    )
    shape = (-1, 4 if uniform else -1)
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", shape),),
        (TensorSpec("y", "FP32", shape),),
        RowLayout(True, 1, (0,), (0,)),
    )

    assert load_version(make_group(), model).uniform is uniform
