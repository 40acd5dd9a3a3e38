"""Every failure that no kill explains is a complaint, and every one that it explains is not."""

import json
from typing import Any

import pytest

from chaos import Complaint, Kill, Known, complaints
from chaos.numbers import number_of
from openloop import Answer

SECOND = 1_000_000_000


MARKERS = frozenset({"low", "high"})


def scores(version: float, *more: float) -> bytes:
    return json.dumps({"outputs": [{"name": "y", "data": [version, *more]}]}).encode()


def rows(version: float, low: float, high: float) -> bytes:
    outputs = {"dense": version, "low": low, "high": high}
    return json.dumps({"outputs": [{"name": n, "data": [x]} for n, x in outputs.items()]}).encode()


def answer(**changes: Any) -> Answer:
    values = {
        "number": 1,
        "due_ns": 10 * SECOND,
        "sent_ns": 10 * SECOND,
        "ended_ns": 10 * SECOND + 1000,
        "outcome": "ok",
        "status": 200,
        "recorded": ("7",),
        "connection": 3,
        "local_port": 4000,
        "body": scores(7),
    }
    return Answer(**{**values, **changes})


def rules(
    *answers: Answer,
    kills: tuple[Kill, ...] = (),
    markers: frozenset[str] = frozenset(),
    known: tuple[Known, ...] = (),
    deltas: bool = False,
) -> list[str]:
    return [one.rule for one in complaints(answers, kills, markers, known, deltas)]


RESET = {"outcome": "reset", "status": None, "recorded": (), "body": b"", "ended_ns": 11 * SECOND}


def test_a_good_answer_is_no_complaint() -> None:
    assert rules(answer()) == []


def test_a_reset_of_the_killed_workers_connection_is_no_complaint() -> None:
    kill = Kill("worker", 1, 10 * SECOND + 5, frozenset({5000}))

    assert rules(answer(**RESET), kills=(kill,)) == []


@pytest.mark.parametrize(
    "kill",
    [
        Kill("worker", 1, 10 * SECOND + 5, frozenset({4000})),
        Kill("supervisor", 1, 10 * SECOND + 5, frozenset()),
        Kill("worker", 1, 7 * SECOND, frozenset()),
        Kill("worker", 1, 12 * SECOND, frozenset()),
    ],
)
def test_a_reset_that_no_kill_explains_is_a_complaint(kill: Kill) -> None:
    assert rules(answer(**RESET), kills=(kill,)) == ["failed"]


@pytest.mark.parametrize(
    "failure",
    [
        {"outcome": "status", "status": 503},
        {"outcome": "timeout", "status": None},
        {"outcome": "unsent", "status": None, "sent_ns": None, "connection": None},
        {"outcome": "malformed", "status": None},
    ],
)
def test_no_kill_explains_another_failure(failure: dict[str, Any]) -> None:
    kill = Kill("worker", 1, 10 * SECOND + 5)

    (complaint,) = complaints([answer(**failure)], [kill])
    assert isinstance(complaint, Complaint)
    assert complaint.rule == "failed"


def test_a_version_that_goes_back_on_one_connection_is_a_complaint() -> None:
    old = answer(recorded=("6",), body=scores(6), sent_ns=11 * SECOND)

    assert rules(old, answer()) == ["backwards"]
    assert rules(answer(), answer(**{**{"connection": 4}, "sent_ns": 12 * SECOND})) == []


def test_versions_that_differ_between_connections_at_one_time_are_none() -> None:
    old = answer(recorded=("6",), body=scores(6), sent_ns=10 * SECOND + 500, connection=9)

    assert rules(answer(), old) == []


def test_a_version_behind_one_that_another_connection_saw_is_a_complaint() -> None:
    old = answer(recorded=("6",), body=scores(6), sent_ns=11 * SECOND, connection=9)

    assert rules(answer(), old) == ["stale"]


def test_a_version_behind_what_was_current_everywhere_is_a_complaint() -> None:
    known = (Known(11 * SECOND, 8), Known(9 * SECOND, 6))

    assert rules(answer(), known=known) == []
    assert rules(answer(sent_ns=12 * SECOND), known=known) == ["lost"]


def test_an_answer_of_another_version_than_it_says_is_a_complaint() -> None:
    assert rules(answer(body=scores(6))) == ["mixed"]


def test_one_number_of_another_version_in_an_answer_is_a_complaint() -> None:
    assert rules(answer(body=scores(7, 7, 6))) == ["mixed"]


def test_rows_of_another_version_than_the_weights_are_a_complaint() -> None:
    assert rules(answer(body=rows(7, 7, 7))) == []
    assert rules(answer(body=rows(7, 6, 6))) == ["mixed"]
    assert rules(answer(body=rows(6, 7, 7))) == ["mixed"]


def test_rows_of_two_markers_are_a_complaint() -> None:
    assert rules(answer(body=rows(7, 30, 30)), markers=MARKERS) == []
    assert rules(answer(body=rows(7, 30, 31)), markers=MARKERS) == ["mixed"]


def test_markers_that_go_back_are_a_complaint() -> None:
    new = answer(body=rows(7, 30, 30))
    old = answer(body=rows(7, 29, 29), sent_ns=11 * SECOND)
    elsewhere = answer(body=rows(7, 29, 29), sent_ns=11 * SECOND, connection=9)

    assert rules(new, old, markers=MARKERS) == ["backwards"]
    assert rules(new, elsewhere, markers=MARKERS) == ["stale"]
    assert rules(new, markers=MARKERS, known=(Known(9 * SECOND, 0, 31),)) == ["lost"]


def updated(version: int, delta: int, *numbers: int, at_s: int = 10) -> Answer:
    """Return an answer that says its version and delta, computed by these numbers."""
    return answer(
        recorded=(str(version), str(delta)),
        body=scores(*numbers),
        sent_ns=at_s * SECOND,
        ended_ns=at_s * SECOND + 1000,
        connection=at_s,
    )


def test_numbers_of_the_delta_that_an_answer_names_are_no_complaint() -> None:
    whole = updated(7, 3, number_of(7, 3), number_of(7, 3))

    assert rules(updated(7, 0, number_of(7, 0), at_s=8), whole, deltas=True) == []


@pytest.mark.parametrize(
    "numbers",
    [
        (number_of(7, 3), number_of(7, 2)),
        (number_of(7, 2), number_of(7, 2)),
        (number_of(6, 3), number_of(6, 3)),
        (-1, -1),
    ],
    ids=["of two deltas", "of another delta", "of another version", "damaged"],
)
def test_numbers_of_anything_else_are_a_mixture(numbers: tuple[int, int]) -> None:
    assert rules(updated(7, 3, *numbers), deltas=True) == ["mixed"]


def test_a_delta_does_not_go_back_after_it_was_seen() -> None:
    first = updated(7, 3, number_of(7, 3))
    older = updated(7, 2, number_of(7, 2), at_s=12)
    newer = updated(8, 0, number_of(8, 0), at_s=12)

    assert rules(first, older, deltas=True) == ["stale"]
    assert rules(first, newer, deltas=True) == []


def test_a_delta_that_was_current_everywhere_is_lost_behind_it() -> None:
    known = (Known(9 * SECOND, 7, number_of(7, 4)),)

    assert rules(updated(7, 3, number_of(7, 3)), known=known, deltas=True) == ["lost"]
