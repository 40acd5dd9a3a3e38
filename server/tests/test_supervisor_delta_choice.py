"""Which delta a version should be at: cases, and what holds for all of them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_server.supervisor.delta_choice import DeltaFacts, delta_to_ask, wanted_delta
from anabranch_server.supervisor.seen_deltas import SeenDeltas, ranges_of


def seen(text: str) -> SeenDeltas:
    """Deltas as `1 2 5<4`: numbers, and what a cumulative one replaces from."""
    numbers, jumps = [], []
    replaces_from = 0
    for word in text.split():
        number, _, since = word.partition("<")
        numbers.append(int(number))
        replaces_from = int(since or number)
        if since:
            jumps.append((replaces_from, int(number)))
    return SeenDeltas(ranges_of(numbers), replaces_from, jumps=tuple(jumps))


def facts(text: str, stops: Mapping[int, int] | None = None, accepted: int = 0) -> DeltaFacts:
    return DeltaFacts(seen(text), stops or {}, accepted)


def wanted(applied: int, told: DeltaFacts, held: int | None = None, *, manual: bool = False) -> int:
    return wanted_delta(applied, told, held=held, is_manual=manual)


def test_a_version_follows_the_newest_delta() -> None:
    assert wanted(0, facts("")) == 0
    assert wanted(0, facts("1 2 3")) == 3
    assert wanted(3, facts("1 2 3")) == 3


def test_deltas_that_are_taken_away_take_nothing_back() -> None:
    assert wanted(7, facts("1 2 3")) == 7


def test_what_is_behind_a_gap_is_asked_for_once() -> None:
    assert wanted(2, facts("1 2 4 5")) == 5  # nobody knows yet that nothing leads past it
    assert wanted(2, facts("1 2 4 5", {3: 5})) == 2
    assert wanted(2, facts("1 2 4 5 6", {3: 5})) == 2
    assert wanted(1, facts("1 2 4 5", {3: 5})) == 2
    assert wanted(2, facts("1 2 4 5 9<3", {3: 5})) == 9


def test_a_refused_delta_stops_before_it_until_a_later_one_leads_past() -> None:
    assert wanted(2, facts("1 2 3 4 5 6", {5: 6})) == 4
    assert wanted(4, facts("1 2 3 4 5 6 7", {5: 6})) == 4
    assert wanted(4, facts("1 2 3 4 5 6 7<1", {5: 6})) == 7
    assert wanted(4, facts("1 2 3 4 5 6 7<5 8", {5: 6})) == 8
    assert wanted(4, facts("1 2 3 4 5 6 7<6", {5: 6})) == 4


def test_what_was_there_when_a_delta_was_refused_does_not_lead_past_it() -> None:
    assert wanted(4, facts("1 2 3 4 5 6<1 7", {5: 7})) == 4
    assert wanted(4, facts("1 2 3 4 5 6<1 7", {5: 5})) == 7


def test_a_cumulative_one_that_is_refused_leaves_the_way_by_single_ones() -> None:
    assert wanted(2, facts("1 2 3 4 5<1", {5: 5})) == 4


def test_a_hold_fixes_a_delta_before_or_after() -> None:
    told = facts("1 2 3 4 5")
    assert [wanted(3, told, held) for held in (0, 2, 3, 5)] == [0, 2, 3, 5]
    assert wanted(3, facts("1 2 3 4", {4: 4}), 4) == 3
    assert wanted(0, facts("1 2 3"), 9) == 3  # it is gone: the nearest one below
    assert wanted(5, facts("1 2 3 4 5", {2: 2}), 3) == 5  # it was tried just now


def test_where_deltas_wait_to_be_asked_for_they_are_not_applied() -> None:
    assert wanted(2, facts("1 2 3 4"), manual=True) == 2
    assert wanted(0, facts("1 2 3 4", accepted=3), manual=True) == 3
    assert wanted(4, facts("1 2 3 4", accepted=3), manual=True) == 4


@pytest.mark.parametrize(("upto", "expected"), [(0, 2), (2, 2), (3, 3), (9, 4)])
def test_no_more_is_asked_for_than_was_wanted(upto: int, expected: int) -> None:
    assert delta_to_ask(2, facts("1 2 3 4"), upto) == expected


# --- for all ----------------------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, DeltaFacts]:
    numbers = draw(st.sets(st.integers(1, 12)))
    since = {n: draw(st.integers(1, n)) if draw(st.booleans()) else n for n in sorted(numbers)}
    newest = max(numbers, default=0)
    jumps = tuple((first, n) for n, first in since.items() if first < n and draw(st.booleans()))
    stops = {
        n: draw(st.integers(n, max(n, newest)))
        for n in draw(st.sets(st.integers(1, 12), max_size=3))
    }
    told = SeenDeltas(ranges_of(sorted(numbers)), since.get(newest, 0), jumps=jumps)
    return draw(st.integers(0, 12)), DeltaFacts(told, stops, draw(st.integers(0, 12)))


def paths(at: int, told: DeltaFacts) -> set[int]:
    """Every delta that one step after the other leads to, as far as is known."""
    ways = {(n, n) for first, last in told.seen.ranges for n in range(first, last + 1)}
    ways |= {*told.seen.jumps, (told.seen.replaces_from, told.seen.newest)}
    reached = {at}
    while True:
        more = {
            number
            for replaces_from, number in ways
            for start in reached
            if 0 < replaces_from <= start + 1 <= number
            and all(
                number > newest for stop, newest in told.stops.items() if start < stop <= number
            )
        }
        if more <= reached:
            return reached
        reached |= more


@given(situations())
def test_reach_is_the_furthest_of_all_ways(situation: tuple[int, DeltaFacts]) -> None:
    applied, told = situation
    assert told.seen.reach(applied, told.stops) == max(paths(applied, told))


@given(situations(), st.booleans())
def test_without_a_hold_nothing_goes_back_nor_past_what_is_in_the_way(
    situation: tuple[int, DeltaFacts], manual: bool
) -> None:
    applied, told = situation
    to = wanted(applied, told, manual=manual)
    assert to >= applied
    if to > applied:
        assert to <= max(told.seen.newest, applied)
        if any(applied < stop <= told.seen.newest for stop in told.stops) and not manual:
            assert to in paths(applied, told)
    if manual:
        assert to <= max(applied, told.accepted)


@given(situations(), st.integers(0, 12))
def test_a_hold_is_never_passed(situation: tuple[int, DeltaFacts], held: int) -> None:
    applied, told = situation
    to = wanted(applied, told, held)
    assert to <= max(applied, held)
    assert to == held or to <= applied or to <= held
