"""What is in the way of deltas: when it is said, and when it is tried again."""

import pytest

from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.keeper_delta_faults import DeltaFault, DeltaFaults
from anabranch_server.supervisor.seen_deltas import SeenDeltas
from anabranch_wire.errors import (
    AnabranchError,
    Conflict,
    Corrupt,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    TooLarge,
    Unavailable,
    Unproven,
)

NEVER = float("inf")


@pytest.fixture
def faults() -> DeltaFaults:
    return DeltaFaults(gap_grace_s=60.0)


def note(
    faults: DeltaFaults, now_s: float, error: AnabranchError | None = None, sequence: int = 25
) -> DeltaFault | None:
    error = error or Unavailable("away")
    return faults.note(1, sequence, 30, error, "unreachable", now_s, is_of_files=True)


def miss(faults: DeltaFaults, now_s: float) -> DeltaFault | None:
    return faults.note(1, 3, 5, Conflict("delta 3 is missing"), "gap", now_s)


def test_a_fault_is_said_once_and_stands_in_the_way_until_its_time(faults: DeltaFaults) -> None:
    assert faults.stops(1, 0.0) == {}
    said = note(faults, 100.0)
    assert said is not None
    assert faults.of(1) == said
    assert faults.stops(1, 109.0) == {25: 30}
    assert faults.stops(1, 111.0) == {}
    assert note(faults, 111.0) is None
    assert faults.of(1) is not None


def test_another_fault_of_the_same_delta_is_said_too(faults: DeltaFaults) -> None:
    note(faults, 100.0)
    assert note(faults, 111.0, Unavailable("another")) is not None


def test_waits_grow_up_to_five_minutes(faults: DeltaFaults) -> None:
    waits, now_s = [], 0.0
    for _ in range(8):
        note(faults, now_s)
        fault = faults.of(1)
        assert fault is not None
        waits.append(fault.retry_at_s - now_s)
        now_s = fault.retry_at_s
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (Unavailable("x"), True),
        (TooLarge("x"), True),
        (DeadlineExceeded("x"), True),
        (Internal("x"), True),
        (Unproven("x"), True),
        (Corrupt("x"), False),
        (Conflict("x"), False),
        (InvalidInput("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_may_pass_is_tried_again_by_itself(
    faults: DeltaFaults, error: AnabranchError, passes: bool
) -> None:
    fault = note(faults, 100.0, error)
    assert fault is not None
    assert (fault.retry_at_s < NEVER) == passes
    fault = faults.note(1, 25, 30, error, "shape", 100.0, passes=True)
    assert fault is not None
    assert fault.retry_at_s == 110.0


def test_a_gap_is_said_when_its_grace_is_over_and_looked_at_now_and_then(
    faults: DeltaFaults,
) -> None:
    assert miss(faults, 100.0) is None
    assert (faults.of(1), faults.wake_at_s(100.0)) == (None, 160.0)
    assert faults.stops(1, 159.0) == {3: 5}
    assert faults.stops(1, 160.0) == {}
    assert miss(faults, 160.0) is not None
    assert faults.wake_at_s(160.0) == 460.0
    assert miss(faults, 460.0) is None
    assert faults.of(1) is not None


def test_a_gap_that_is_filled_is_none(faults: DeltaFaults) -> None:
    miss(faults, 100.0)
    note(faults, 100.0)
    faults.filled(1, SeenDeltas(((1, 2), (4, 30))))
    assert faults.stops(1, 100.0) == {3: 5, 25: 30}
    faults.filled(1, SeenDeltas(((1, 30),)))
    assert faults.stops(1, 100.0) == {25: 30}


def test_what_has_been_passed_is_forgotten(faults: DeltaFaults) -> None:
    miss(faults, 100.0)
    note(faults, 100.0)
    faults.passed(1, 24)
    assert faults.stops(1, 100.0) == {25: 30}
    faults.passed(1, 25)
    assert faults.wake_at_s(100.0) is None


def test_what_did_not_fit_together_is_tried_at_once_where_the_first_of_it_is_reached(
    faults: DeltaFaults,
) -> None:
    full = NoRoom("no room for 7 keys")
    for sequence, upto in ((9, 9), (5, 9)):
        faults.note(1, sequence, upto, full, "store_full", 100.0, passes=True)
    faults.passed(1, 3)
    assert faults.stops(1, 100.0) == {9: 9, 5: 9}
    faults.passed(1, 4)
    assert faults.stops(1, 100.0) == {}
    faults.note(1, 5, 5, full, "store_full", 100.0, passes=True)
    faults.passed(1, 4)
    assert faults.stops(1, 100.0) == {5: 5}
    assert faults.stops(1, 119.0) == {5: 5}  # it waits longer than at first


def test_the_first_of_many_is_the_one_to_name(faults: DeltaFaults) -> None:
    note(faults, 100.0)
    first = note(faults, 100.0, sequence=7)
    assert faults.of(1) == first


def test_files_of_what_lasts_are_looked_at_now_and_then(faults: DeltaFaults) -> None:
    note(faults, 100.0, Corrupt("cut off"))
    assert [(version, fault.sequence) for version, fault in faults.lasting(100.0)] == [(1, 25)]
    assert list(faults.lasting(104.0)) == []
    assert faults.wake_at_s(104.0) == 105.0
    assert len(list(faults.lasting(105.0))) == 1
    faults.looked_at(1, 25, "a")  # who knows what they were when they were read
    faults.looked_at(1, 26, "a")
    assert faults.stops(1, 105.0) == {}
    assert list(faults.lasting(111.0)) == []
    assert note(faults, 111.0, Corrupt("cut off")) is None  # it is as bad as it was
    assert len(list(faults.lasting(116.0))) == 1
    faults.looked_at(1, 25, "a")
    assert faults.stops(1, 116.0) == {25: 30}
    faults.looked_at(1, 25, "b")
    assert faults.stops(1, 116.0) == {}


def test_files_of_what_may_pass_are_only_told_apart(faults: DeltaFaults) -> None:
    note(faults, 100.0)
    faults.looked_at(1, 25, "a")
    assert faults.stops(1, 100.0) == {25: 30}
    faults.looked_at(1, 25, "b")
    assert faults.stops(1, 100.0) == {}


def test_people_and_versions_that_leave_take_faults_along(faults: DeltaFaults) -> None:
    note(faults, 100.0)
    faults.note(2, 1, 1, Corrupt("x"), "checksum", 100.0)
    faults.keep({2, 3})
    assert (faults.of(1), faults.of(2) is None) == (None, False)
    faults.forget(2)
    assert faults.of(2) is None
    note(faults, 100.0)
    faults.forget()
    assert faults.of(1) is None


def test_of_faults_without_end_the_first_and_the_newest_are_known(faults: DeltaFaults) -> None:
    for sequence in range(10, 1010):
        note(faults, 100.0, Corrupt("bad"), sequence)

    first = faults.of(1)
    assert first is not None
    assert first.sequence == 10
    assert set(faults.stops(1, 101.0)) == {10, *range(947, 1010)}
