"""Which executor computes what, and on which processors."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.settings import BatchSettings, QueueSettings
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import (
    Collector,
    Counts,
    MakeGroup,
    load_version,
    ticket_of,
    until_asleep,
)
from anabranch_wire.errors import InvalidInput, Overloaded

ONE = np.ones((1, 4), np.float32)


def ones(rows: int) -> NDArray[np.float32]:
    return np.ones((rows, 4), np.float32)


def test_executors_take_turns(make_group: MakeGroup, counts: Counts, tmp_path: Path) -> None:
    group = make_group(3, select="round_robin")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    for number in range(9):
        group.submit(ticket_of(served, sink, ONE))
        sink.wait(number + 1)

    used = [executor for executor, _, _ in counts.batches]
    assert sorted(used[:3]) == [0, 1, 2]
    assert used == used[:3] * 3


def test_turns_wait_each_in_their_own_queue(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(2, select="round_robin")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()
    for _ in range(2):
        group.submit(ticket_of(served, sink, ONE))
        assert backend.entered.acquire(timeout=10)

    for rows in (2, 3, 4, 5):
        group.submit(ticket_of(served, sink, ones(rows)))
    assert group.queue_depth() == (4, 14)
    assert group.in_flight() == 6
    backend.gate.set()
    sink.wait(6)

    assert sorted(rows for _, rows, _ in counts.batches) == [1, 1, 2 + 4, 3 + 5]


def test_a_large_request_is_cut_over_turns_too(
    make_group: MakeGroup, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, split_rows=10), select="round_robin")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)

    group.submit(ticket_of(served, sink, ones(30)))
    sink.wait(1)

    until_asleep(group)
    assert sorted(counts.batches) == [(0, 10, 1), (1, 10, 1), (2, 10, 1)]


def test_a_routing_key_belongs_to_one_executor(
    make_group: MakeGroup, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, split_rows=2), select="mod")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)

    keys: list[str | int] = [7, "7", 8, 9, 10, "a name"]
    for number, key in enumerate(keys * 3):
        group.submit(ticket_of(served, sink, ones(12), routing_key=key))
        sink.wait(number + 1)
        until_asleep(group)

    used = [executor for executor, _, _ in counts.batches]
    assert used[:5] == [1, 1, 2, 0, 1]
    assert used == used[:6] * 3
    assert {rows for _, rows, _ in counts.batches} == {12}  # never cut


def test_a_request_of_a_busy_key_waits_though_others_sleep(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(2, select="mod")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)
    backend.hold()
    group.submit(ticket_of(served, sink, ONE, routing_key=0))
    assert backend.entered.acquire(timeout=10)

    group.submit(ticket_of(served, sink, ones(2), routing_key=2))
    assert group.queue_depth() == (1, 2)
    group.submit(ticket_of(served, sink, ones(3)))  # without a key: where the least waits
    assert backend.entered.acquire(timeout=10)
    backend.gate.set()
    sink.wait(3)

    assert sorted(counts.batches) == [(0, 1, 1), (0, 2, 1), (1, 3, 1)]


def test_bounds_count_over_all_queues(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(2, queue=QueueSettings(max_requests=3), select="mod")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()
    for key in (0, 1):
        group.submit(ticket_of(served, sink, ONE, routing_key=key))
        assert backend.entered.acquire(timeout=10)
    for key in (0, 0, 1):
        group.submit(ticket_of(served, sink, ONE, routing_key=key))

    for key in (0, 1):
        with pytest.raises(Overloaded):
            group.submit(ticket_of(served, sink, ONE, routing_key=key))
    group.submit(ticket_of(served, sink, ONE, routing_key=1, priority=1))
    backend.gate.set()
    done = sink.wait(6)

    assert counts.shed_reasons == ["queue_full", "queue_full", "priority"]
    assert [type(ticket.error) for ticket in done].count(Overloaded) == 1


def test_a_queue_of_its_own_waits_to_fill_too(
    make_group: MakeGroup, counts: Counts, tmp_path: Path
) -> None:
    batching = BatchSettings(max_rows=4, max_delay_s=5.0, split_rows=0)
    group = make_group(2, batching, select="mod")
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    for key in (0, 1, 0, 1):
        group.submit(ticket_of(served, sink, ones(2), routing_key=key))
    sink.wait(4)

    assert sorted(counts.batches) == [(0, 4, 2), (1, 4, 2)]


# --- processors ---------------------------------------------------------------------------------


class AffinityBackend(GatedBackend):
    """Keeps which processors each executor's thread was kept to."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[int]] = {}

    def enter(self) -> None:
        self.seen[threading.current_thread().name] = os.sched_getaffinity(0)
        super().enter()


@pytest.fixture
def backend() -> AffinityBackend:
    return AffinityBackend()


def test_executors_keep_to_their_processors(
    make_group: MakeGroup, backend: AffinityBackend, tmp_path: Path
) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    first, last = frozenset(allowed[:1]), frozenset(allowed[-1:])
    group = make_group(2, select="mod", cpusets=(first, last))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    for key in (0, 1):
        group.submit(ticket_of(served, sink, ONE, routing_key=key))
    sink.wait(2)

    assert backend.seen["m-e0"] == first
    assert backend.seen["m-e1"] == last
    assert os.sched_getaffinity(0) == set(allowed)


def test_processors_of_others_are_refused_before_anything_is_built(
    make_group: MakeGroup,
) -> None:
    allowed = os.sched_getaffinity(0)
    before = threading.active_count()

    with pytest.raises(InvalidInput) as caught:
        make_group(2, cpusets=(frozenset(allowed), frozenset({1022, 1023})))

    assert "processors 1022, 1023 are not for this process" in caught.value.message
    assert ", ".join(map(str, sorted(allowed))) in caught.value.message
    assert threading.active_count() == before
