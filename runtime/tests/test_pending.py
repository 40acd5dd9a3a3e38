from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from anabranch_runtime.pacing import Pace
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


# --- time ---------------------------------------------------------------------------------------


def paced(folder: Path, *, fixed_rows: float = 0.0, max_rows: int = 8) -> ServedVersion:
    """A version whose batches were seen to take 1 s a row at 0 s."""
    pace = Pace(max_rows, fixed_rows)
    pace.observe(1, 1.0 + fixed_rows, now=0.0)
    return served_version(scale_model(folder), max_rows=max_rows, pace=pace)


def test_what_cannot_be_finished_in_time_is_not_begun(make: Make, tmp_path: Path) -> None:
    version = paced(tmp_path)
    queue = PendingQueue(1)
    hopeless, good = make(4, deadline=3.9, version=version), make(4, deadline=4.0, version=version)
    fill(queue, [hopeless, good])

    assert queue.take(0.0) == ([good], [hopeless])
    assert (queue.requests, queue.rows) == (0, 0)


def test_a_batch_is_no_longer_than_its_members_have_time(make: Make, tmp_path: Path) -> None:
    version = paced(tmp_path)
    queue = PendingQueue(1)
    patient, hasty, third = (
        make(2, deadline=50.0, version=version),
        make(2, deadline=5.0, version=version),
        make(2, deadline=50.0, version=version),
    )
    fill(queue, [patient, hasty, third])

    assert queue.take(0.0) == ([patient, hasty], [])
    assert queue.take(0.0) == ([third], [])


def test_who_has_no_time_for_the_batch_waits_for_the_next(make: Make, tmp_path: Path) -> None:
    version = paced(tmp_path)
    queue = PendingQueue(1)
    first, hasty, third = (
        make(2, deadline=50.0, version=version),
        make(2, deadline=3.0, version=version),
        make(2, deadline=50.0, version=version),
    )
    fill(queue, [first, hasty, third])

    assert queue.take(0.0) == ([first, third], [])
    assert queue.take(0.0) == ([hasty], [])


def test_a_wasteful_batch_is_not_run_while_many_wait(make: Make, tmp_path: Path) -> None:
    version = paced(tmp_path, fixed_rows=8.0)  # one row takes 9 s, eight take 16 s
    queue = PendingQueue(1)
    tight = make(deadline=9.5, version=version)
    others = [make(deadline=100.0, version=version) for _ in range(8)]
    fill(queue, [tight, *others])

    assert queue.take(0.0) == (others, [tight])
    alone = make(deadline=9.5, version=version)
    queue.push(alone)
    assert queue.take(0.0) == ([alone], [])


def test_what_was_measured_long_ago_drops_nobody(make: Make, tmp_path: Path) -> None:
    version = paced(tmp_path)
    queue = PendingQueue(1)
    hopeless = make(4, deadline=101.0, version=version)
    queue.push(hopeless)

    assert queue.take(100.0) == ([hopeless], [])


def test_a_delay_leaves_time_to_compute(make: Make, tmp_path: Path) -> None:
    queue = PendingQueue(1)
    hasty = make(deadline=18.0, version=paced(tmp_path))
    hasty.submitted = 10.0
    queue.push(hasty)

    assert queue.fill_time(0.5, now=10.0) == 0.0


# --- how much waits -----------------------------------------------------------------------------


def test_work_is_counted_by_priority(make: Make, tmp_path: Path) -> None:
    version = paced(tmp_path, fixed_rows=8.0)
    queue = PendingQueue(3)
    fill(
        queue,
        [
            make(4, priority=1, version=version),
            make(8, priority=2, version=version),
            make(8, version=version),
        ],
    )

    assert queue.work_s(1) == pytest.approx(4 + 4)  # half a batch, and half of what one costs
    assert queue.work_s(2) == pytest.approx(8 + 16)
    assert queue.work_s(0) == queue.work_s(None) == pytest.approx(8 + 16 + 16)
    assert queue.below(1) == (2, 16)
    assert queue.below(0) == (0, 0)
    while queue.take(0.0)[0]:
        pass
    assert queue.work_s(None) == 0.0
    assert queue.below(1) == (0, 0)


def test_the_newest_of_the_lowest_priority_makes_room(make: Make) -> None:
    queue = PendingQueue(3)
    high, middle, old, new = make(priority=1), make(priority=2), make(3), make(4)
    fill(queue, [high, middle, old, new])

    left = []
    while (found := queue.newest_below(1)) is not None:
        level, ticket = found
        assert queue.remove_newest(level) is ticket
        left.append(ticket)

    assert left == [new, old, middle]
    assert queue.newest_below(2) is None
    assert (queue.requests, queue.rows) == (1, 1)


def test_levels_change_while_tickets_wait(make: Make) -> None:
    queue = PendingQueue(1)
    first, second, third = make(8, priority=2), make(8, priority=1), make(8)
    for number, ticket in enumerate((first, second, third)):
        ticket.submitted = float(number)
    fill(queue, [first, second, third])

    queue.set_levels(3)
    assert (queue.requests, queue.rows) == (3, 24)
    assert queue.take(0.0)[0] == [second]
    queue.set_levels(1)

    assert [queue.take(0.0)[0] for _ in range(2)] == [[first], [third]]
