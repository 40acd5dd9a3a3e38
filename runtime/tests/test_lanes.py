import math
from pathlib import Path

import pytest

from anabranch_runtime.executor import Executor
from anabranch_runtime.lanes import Lane, start_of
from anabranch_runtime.pacing import Pace
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, Counts, served_version


@pytest.mark.parametrize(
    ("untils", "work_s", "start"),
    [
        ([12.0], 0.0, 12.0),
        ([12.0], 3.0, 15.0),
        ([7.0], 3.0, 13.0),  # overdue: free now at best
        ([11.0, 20.0], 0.0, 11.0),
        ([11.0, 20.0], 4.0, 15.0),
        ([11.0, 13.0], 4.0, 14.0),
        ([11.0, 11.0, 11.0], 6.0, 13.0),
        ([10.0, 12.0, 30.0], 6.0, 14.0),
    ],
)
def test_work_is_shared_by_who_is_free(untils: list[float], work_s: float, start: float) -> None:
    assert start_of(untils, work_s, now=10.0) == pytest.approx(start)


@pytest.fixture
def version(tmp_path: Path) -> ServedVersion:
    """1 s a row and as much as a row for the batch, eight rows a batch."""
    pace = Pace(8, 1.0)
    pace.observe(1, 2.0, now=0.0)
    return served_version(scale_model(tmp_path), pace=pace)


def busy_lane(*untils: float) -> Lane:
    executors = [
        Executor("m", index, lambda _: None, Counts(), None, lambda _: None)
        for index in range(len(untils))
    ]
    for executor, until in zip(executors, untils, strict=True):
        executor.until = until
    lane = Lane(executors, 2)
    lane.latest = max(untils)
    return lane


def ticket(version: ServedVersion, rows: int, deadline: float, priority: int = 0) -> Ticket:
    return Ticket(ScoreRequest((), rows, (), deadline, priority), version, Collector())


@pytest.mark.parametrize(("deadline", "late"), [(24.2, True), (24.4, False), (9.0, False)])
def test_a_request_is_too_late_behind_a_batch(
    version: ServedVersion, deadline: float, late: bool
) -> None:
    lane = busy_lane(20.0)  # the answer comes at 23, after 13 s; a tenth more must be left

    assert lane.is_too_late(ticket(version, 2, deadline), now=10.0) is late


def test_what_waits_counts_unless_its_priority_is_lower(version: ServedVersion) -> None:
    lane = busy_lane(20.0)
    lane.pending.push(ticket(version, 8, 1000.0))  # nine seconds

    assert lane.is_too_late(ticket(version, 8, 40.5), now=10.0)
    assert not lane.is_too_late(ticket(version, 8, 41.0), now=10.0)
    assert not lane.is_too_late(ticket(version, 8, 31.0, priority=1), now=10.0)
    assert lane.drain_s(10.0) == pytest.approx(19.0)


def test_two_executors_are_twice_as_fast(version: ServedVersion) -> None:
    lane = busy_lane(20.0, 20.0)
    lane.pending.push(ticket(version, 8, 1000.0))

    assert not lane.is_too_late(ticket(version, 8, 31.0), now=10.0)
    assert lane.is_too_late(ticket(version, 8, 30.8), now=10.0)
    assert lane.drain_s(10.0) == pytest.approx(14.5)


def test_nobody_is_too_late_for_an_executor_that_sleeps(version: ServedVersion) -> None:
    lane = busy_lane(20.0, 0.0)
    lane.idle.append(lane.executors[1])

    assert not lane.is_too_late(ticket(version, 8, 10.001), now=10.0)
    assert lane.load() == 1


def test_an_unknown_pace_refuses_nobody(tmp_path: Path) -> None:
    unknown = served_version(scale_model(tmp_path))
    lane = busy_lane(10.0)
    lane.pending.push(ticket(unknown, 8, math.inf))

    assert not lane.is_too_late(ticket(unknown, 8, 10.001), now=10.0)
