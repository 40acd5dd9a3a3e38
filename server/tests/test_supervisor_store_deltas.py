"""Which deltas can be read, and which runs lead from one to another: values alone."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_server.processes.plans import GenerationPlan, RunPlan, VersionPlan
from anabranch_server.supervisor.store_deltas import ReadableDeltas, following
from anabranch_testing.workers import scale_plan


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> VersionPlan:
    return scale_plan(Path(tmp_path_factory.mktemp("version")), 1)


def run(first: int, last: int) -> RunPlan:
    return RunPlan(f"{first}-{last}", first, last)


def at(
    version: VersionPlan, delta: int, *runs: RunPlan, increment: RunPlan | None = None
) -> VersionPlan:
    return msgspec.structs.replace(version, delta=delta, runs=runs, increment=increment)


def place(store_version: int, number: int = 1) -> GenerationPlan:
    return GenerationPlan(1, number, store_version)


# --- what leads to a delta ------------------------------------------------------------------------


def test_the_increment_of_just_the_deltas_between_is_applied(version: VersionPlan) -> None:
    wanted = at(version, 7, run(1, 7), increment=run(5, 7))

    assert following(wanted, 4) == (run(5, 7),)


@pytest.mark.parametrize("delta", [3, 5, 6])
def test_an_increment_from_elsewhere_never_is(version: VersionPlan, delta: int) -> None:
    wanted = at(version, 7, run(1, 7), increment=run(5, 7))

    assert following(wanted, delta) is None


def test_an_increment_that_ends_before_the_delta_is_none(version: VersionPlan) -> None:
    assert following(at(version, 7, run(1, 7), increment=run(5, 6)), 4) is None


def test_runs_that_begin_just_there_lead_on_too(version: VersionPlan) -> None:
    wanted = at(version, 9, run(1, 4), run(5, 8), run(9, 9), increment=run(8, 9))

    assert following(wanted, 4) == (run(5, 8), run(9, 9))


def test_deltas_without_rows_leave_them_as_they_are(version: VersionPlan) -> None:
    assert following(at(version, 9, run(1, 4)), 4) == ()
    assert following(at(version, 9), 0) == ()


def test_nothing_leads_back(version: VersionPlan) -> None:
    assert following(at(version, 3, run(1, 3)), 4) is None


# --- what can be read -----------------------------------------------------------------------------


def test_a_store_begins_with_one_delta() -> None:
    deltas = ReadableDeltas(4, place(3))

    assert deltas.newest == 4
    assert deltas.numbers == (4,)
    assert deltas.at(4) == place(3)
    assert 3 not in deltas


@pytest.mark.parametrize(("retain", "left"), [(0, (5,)), (1, (4, 5)), (3, (2, 3, 4, 5))])
def test_so_many_stay_as_are_to_be_retained(retain: int, left: tuple[int, ...]) -> None:
    deltas = ReadableDeltas(0, place(1))

    for delta in range(1, 6):
        deltas.go_on(delta, place(1 + delta))
        deltas.serve(delta, retain)

    assert deltas.numbers == left


def test_a_rollback_forgets_nothing_and_the_newest_stays_to_go_on_from() -> None:
    deltas = ReadableDeltas(1, place(1))
    deltas.go_on(2, place(2))
    deltas.serve(2, 1)

    deltas.serve(1, 1)

    assert deltas.numbers == (1, 2)
    assert deltas.newest == 2


def test_what_was_rolled_back_to_stays_rather_than_what_was_left() -> None:
    deltas = ReadableDeltas(1, place(1))
    deltas.go_on(2, place(2))
    deltas.serve(2, 1)
    deltas.serve(1, 1)

    deltas.go_on(3, place(3))
    deltas.serve(3, 1)

    assert deltas.numbers == (1, 3)


def test_another_generation_has_nothing_of_before() -> None:
    deltas = ReadableDeltas(1, place(1))
    deltas.go_on(2, place(2))

    deltas.begin_anew(2, place(2, number=9))

    assert deltas.numbers == (2,)
    assert list(deltas.places) == [place(2, number=9)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30))
def test_the_newest_and_the_served_delta_can_always_be_read(
    steps: list[tuple[bool, int]],
) -> None:
    deltas = ReadableDeltas(0, place(1))
    for moves_on, retain in steps:
        served = deltas.newest + 1 if moves_on else deltas.numbers[0]
        if moves_on:
            deltas.go_on(served, place(1 + served))
        deltas.serve(served, retain)

        assert {deltas.newest, served} <= set(deltas.numbers)
        assert len(deltas.numbers) <= retain + 2
