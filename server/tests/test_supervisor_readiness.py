from dataclasses import replace

import pytest
from msgspec import structs

from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.readiness import Standing, obstacle
from anabranch_testing.workers import GROUP, QUEUE

_GOOD = StatePlan(GROUP, QUEUE, (), (3,), default=3)
_EMPTY = StatePlan(GROUP, QUEUE)
_READY = Standing(
    is_draining=False,
    has_been_ready=False,
    has_looked=True,
    serving_workers=1,
    states={"ctr": _GOOD},
    allow_empty=False,
)


def test_ready_when_every_required_model_answers() -> None:
    optional = structs.replace(_EMPTY, required=False)

    assert obstacle(replace(_READY, states={"ctr": _GOOD, "cvr": optional})) is None


def test_not_before_the_first_look_is_over() -> None:
    assert obstacle(replace(_READY, has_looked=False)) == "the server is starting"


def test_models_that_cannot_answer_are_named_with_the_reason() -> None:
    labelled = structs.replace(_GOOD, default=None, default_label="stable", labels={"stable": 9})

    reason = obstacle(replace(_READY, states={"ctr": _EMPTY, "cvr": labelled, "ok": _GOOD}))

    assert reason == (
        "required models that cannot answer: ctr (no version is loaded), "
        "cvr (default label 'stable' names version 9, which is not loaded; loaded: 3)"
    )


def test_not_all_of_many_models_are_listed() -> None:
    reason = obstacle(replace(_READY, states={f"m{n:02}": _EMPTY for n in range(25)}))

    assert reason is not None
    assert reason.endswith("m19 (no version is loaded) and 5 more")


def test_an_empty_repository_is_ready_only_where_that_was_allowed() -> None:
    empty = replace(_READY, states={})

    assert obstacle(empty) == "the repository has no model"
    assert obstacle(replace(empty, allow_empty=True)) is None


@pytest.mark.parametrize("states", [{}, {"ctr": _EMPTY}, {"ctr": _GOOD, "new": _EMPTY}])
def test_once_ready_no_model_turns_it_off(states: dict[str, StatePlan]) -> None:
    standing = replace(_READY, has_been_ready=True, has_looked=False, states=states)

    assert obstacle(standing) is None


def test_without_workers_nobody_is_ready() -> None:
    reason = obstacle(replace(_READY, has_been_ready=True, serving_workers=0))

    assert reason == "no worker answers requests"


def test_draining_turns_it_off() -> None:
    reason = obstacle(replace(_READY, has_been_ready=True, is_draining=True))

    assert reason == "the server is draining"
