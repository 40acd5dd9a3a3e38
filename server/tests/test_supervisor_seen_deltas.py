"""Ranges of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_server.supervisor.seen_deltas import (
    NO_DELTAS,
    Ranges,
    SeenDeltas,
    ranges_of,
    with_number,
    without_newest,
)

numbers = st.sets(st.integers(1, 20))


@given(numbers, st.integers(1, 20))
def test_a_number_more_is_as_if_it_had_been_there(known: set[int], more: int) -> None:
    assert with_number(ranges_of(sorted(known)), more) == ranges_of(sorted({*known, more}))


@given(numbers.filter(bool))
def test_the_newest_can_be_taken_away(known: set[int]) -> None:
    rest = sorted(known)[:-1]
    assert without_newest(ranges_of(sorted(known))) == ranges_of(rest)


@given(numbers, st.integers(0, 21))
def test_a_number_is_in_or_not(known: set[int], number: int) -> None:
    seen = SeenDeltas(ranges_of(sorted(known)))
    assert (number in seen) == (number in known)
    assert seen.newest == max(known, default=0)


@pytest.mark.parametrize(
    ("ranges", "replaces_from", "applied", "expected"),
    [
        ((), 0, 3, 3),
        (((1, 5),), 5, 0, 5),
        (((1, 5),), 5, 5, 5),
        (((2, 5),), 5, 0, 0),
        (((2, 5),), 1, 0, 5),
        (((1, 3), (5, 6)), 6, 0, 3),
        (((1, 3), (5, 6)), 4, 1, 6),
        (((1, 3), (5, 6)), 0, 3, 3),
    ],
)
def test_how_far_deltas_lead(
    ranges: Ranges, replaces_from: int, applied: int, expected: int
) -> None:
    assert SeenDeltas(ranges, replaces_from).reach(applied) == expected


def test_no_deltas_lead_nowhere() -> None:
    assert (NO_DELTAS.newest, NO_DELTAS.reach(4)) == (0, 4)
