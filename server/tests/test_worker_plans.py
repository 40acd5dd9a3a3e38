from pathlib import Path

import msgspec
import pytest

from anabranch_runtime.settings import BatchSettings, QueueSettings
from anabranch_server.processes.plans import StatePlan, VersionPlan
from anabranch_server.worker.plans import (
    group_settings,
    queue_settings,
    serving_state,
)
from anabranch_testing.versions import declared_version
from anabranch_testing.workers import GROUP, QUEUE, scale_plan, state_of
from anabranch_wire.errors import Internal

replace = msgspec.structs.replace


@pytest.fixture
def plan(tmp_path: Path) -> VersionPlan:
    return scale_plan(tmp_path, 7, delta=3)


def test_a_plan_that_contradicts_itself_is_our_fault() -> None:
    with pytest.raises(Internal, match="queue"):
        queue_settings(replace(QUEUE, max_rows=0))
    with pytest.raises(Internal, match="astrology"):
        group_settings(replace(GROUP, select="astrology"), QUEUE, 0, 1)
    with pytest.raises(Internal, match="executors"):
        group_settings(replace(GROUP, executors=0), QUEUE, 0, 1)


def test_each_worker_has_executors_of_its_own_on_processors_of_its_own() -> None:
    group = replace(
        GROUP, executors=2, select="mod", cpusets=((0,), (1, 2), (3,), (4,)), max_delay_s=0.5
    )

    settings = group_settings(group, QUEUE, 1, 99)

    assert settings.cpusets == (frozenset({3}), frozenset({4}))
    assert settings.executors == 2
    assert settings.select == "mod"
    assert settings.batching == BatchSettings(True, 16, 0.5, 0)
    assert settings.queue == QueueSettings(1024, 65_536, 5.0, 60.0, 2)
    assert settings.max_repeated_bytes == 99
    with pytest.raises(Internal, match="cpusets"):
        group_settings(group, QUEUE, 2, 99)


def test_only_what_is_served_can_be_named(plan: VersionPlan) -> None:
    kept, served = declared_version([], version=1), declared_version([], version=2)
    state = replace(state_of(plan, served=[2], default=2), labels={"old": 1}, default_label="new")

    made = serving_state(state, {1: kept, 2: served})

    assert made.versions == {2: served}
    assert made.labels == {"old": 1}
    assert (made.default, made.default_label, made.required) == (2, "new", True)


@pytest.mark.parametrize(
    "state",
    [
        StatePlan(GROUP, QUEUE, served=(3,)),
        StatePlan(GROUP, QUEUE, served=(), default=1),
        StatePlan(GROUP, QUEUE, served=(1,), default=2),
    ],
)
def test_a_state_cannot_serve_what_it_does_not_have(state: StatePlan) -> None:
    with pytest.raises(Internal, match="plan of a state"):
        serving_state(state, {1: declared_version([], version=1)})
