from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from anabranch_runtime.pending import PendingQueue
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, served_version


class Make(Protocol):
    def __call__(
        self,
        rows: int = 1,
        *,
        priority: int = 0,
        deadline: float = 100.0,
        version: ServedVersion | None = None,
        width: int = 4,
    ) -> Ticket: ...


@pytest.fixture
def make(tmp_path: Path) -> Make:
    default = served_version(scale_model(tmp_path))
    sink = Collector()

    def make(
        rows: int = 1,
        *,
        priority: int = 0,
        deadline: float = 100.0,
        version: ServedVersion | None = None,
        width: int = 4,
    ) -> Ticket:
        x = np.zeros((rows, width), np.float32)
        request = ScoreRequest((x,), rows, (), deadline, priority)
        return Ticket(request, version or default, sink)

    return make


def fill(queue: PendingQueue, tickets: list[Ticket]) -> None:
    for ticket in tickets:
        queue.push(ticket)


def test_takes_what_waits_up_to_the_rows_of_a_batch(make: Make) -> None:
    queue = PendingQueue(2)
    tickets = [make(3), make(3), make(3)]
    fill(queue, tickets)

    batch, late = queue.take(now=0.0)

    assert batch == tickets[:2]
    assert late == []
    assert (queue.requests, queue.rows) == (1, 3)


def test_a_request_larger_than_a_batch_goes_alone(make: Make) -> None:
    queue = PendingQueue(2)
    tickets = [make(50), make(1)]
    fill(queue, tickets)

    assert queue.take(0.0) == ([tickets[0]], [])
    assert queue.take(0.0) == ([tickets[1]], [])
    assert queue.take(0.0) == ([], [])


def test_higher_priority_goes_first_and_may_share_its_batch(make: Make) -> None:
    queue = PendingQueue(3)
    low, default, high = make(priority=2), make(), make(priority=1)
    fill(queue, [default, low, high])

    assert queue.take(0.0) == ([high, low, default], [])


def test_priorities_beyond_the_levels_count_as_the_lowest(make: Make) -> None:
    queue = PendingQueue(2)
    far, first = make(8, priority=99), make(8, priority=1)
    fill(queue, [far, first])

    assert queue.take(0.0)[0] == [first]
    assert queue.take(0.0)[0] == [far]


def test_expired_and_cancelled_tickets_never_reach_a_batch(make: Make) -> None:
    queue = PendingQueue(1)
    expired, gone, good = make(deadline=1.0), make(), make()
    gone.cancelled = True
    fill(queue, [expired, gone, good])

    batch, late = queue.take(now=2.0)

    assert batch == [good]
    assert late == [expired, gone]
    assert (queue.requests, queue.rows) == (0, 0)


def test_versions_are_never_mixed(make: Make, tmp_path: Path) -> None:
    other = served_version(scale_model(tmp_path), version=2)
    queue = PendingQueue(1)
    one, two, three, four = make(), make(version=other), make(), make(version=other)
    fill(queue, [one, two, three, four])

    assert [queue.take(0.0)[0] for _ in range(3)] == [[one, three], [two, four], []]


def test_what_is_passed_by_keeps_its_place(make: Make) -> None:
    queue = PendingQueue(1)
    small, wide, large, last = make(3), make(2, width=5), make(7), make(4)
    fill(queue, [small, wide, large, last])

    assert queue.take(0.0)[0] == [small, last]
    assert (queue.requests, queue.rows) == (2, 9)
    assert queue.take(0.0)[0] == [wide]
    assert queue.take(0.0)[0] == [large]


def test_a_batch_does_not_search_the_whole_queue(make: Make) -> None:
    queue = PendingQueue(1)
    first, far = make(), make()
    between = [make(width=5) for _ in range(32)]
    fill(queue, [first, *between, far])

    assert queue.take(0.0)[0] == [first]
    assert queue.take(0.0)[0] == between[:8]


def test_shapes_that_differ_beside_the_rows_are_never_mixed(make: Make) -> None:
    queue = PendingQueue(1)
    tickets = [make(width=4), make(width=5)]
    fill(queue, tickets)

    assert queue.take(0.0)[0] == tickets[:1]


def test_a_version_that_does_not_merge_goes_one_by_one(make: Make, tmp_path: Path) -> None:
    alone = served_version(scale_model(tmp_path), mergeable=False)
    queue = PendingQueue(1)
    tickets = [make(version=alone), make(version=alone)]
    fill(queue, tickets)

    assert queue.take(0.0)[0] == tickets[:1]


def test_fill_time_counts_from_the_oldest_and_ends_when_full(make: Make) -> None:
    queue = PendingQueue(1)
    first = make(3)
    first.submitted = 10.0
    queue.push(first)

    assert queue.fill_time(0.5, now=10.2) == pytest.approx(0.3)
    queue.push(make(5))
    assert queue.fill_time(0.5, now=10.2) == 0.0


def test_fill_time_counts_from_the_oldest_of_every_priority(make: Make) -> None:
    queue = PendingQueue(2)
    low, high = make(), make(priority=1)
    low.submitted, high.submitted = 10.0, 10.4
    fill(queue, [low, high])

    assert queue.fill_time(0.5, now=10.4) == pytest.approx(0.1)


def test_nobody_waits_for_company_until_it_is_too_late(make: Make) -> None:
    queue = PendingQueue(1)
    hasty = make(deadline=10.3)
    hasty.submitted = 10.0
    queue.push(hasty)

    assert queue.fill_time(0.5, now=10.0) == 0.0
    assert queue.fill_time(0.2, now=10.0) == pytest.approx(0.2)


def test_drain_empties_every_level(make: Make) -> None:
    queue = PendingQueue(2)
    tickets = [make(), make(priority=1)]
    fill(queue, tickets)

    assert set(queue.drain()) == set(tickets)
    assert (queue.requests, queue.rows) == (0, 0)
