"""Every failure that no kill explains is a complaint, and every one that it explains is not."""

from typing import Any

import pytest

from chaos import Complaint, Kill, complaints
from openloop import Answer

SECOND = 1_000_000_000


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
        "body": b'{"outputs":[{"name":"y","data":[7.0,7.0]}]}',
    }
    return Answer(**{**values, **changes})


def rules(*answers: Answer, kills: tuple[Kill, ...] = ()) -> list[str]:
    return [complaint.rule for complaint in complaints(answers, kills)]


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
    old = answer(recorded=("6",), body=b'{"data":[6.0]}', sent_ns=11 * SECOND)

    assert rules(old, answer()) == ["backwards"]
    assert rules(answer(), answer(**{**{"connection": 4}, "sent_ns": 12 * SECOND})) == []


def test_versions_that_differ_between_connections_are_none() -> None:
    old = answer(recorded=("6",), body=b'{"data":[6.0]}', sent_ns=11 * SECOND, connection=9)

    assert rules(answer(), old) == []


def test_an_answer_of_another_version_than_it_says_is_a_complaint() -> None:
    assert rules(answer(body=b'{"data":[6]}')) == ["mixed"]
