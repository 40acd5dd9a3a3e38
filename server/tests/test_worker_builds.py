"""At which priority versions are built, and how a build that gets nowhere ends."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_server.worker.builds import Builds
from anabranch_testing.event_loops import on_loop
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import served_version
from anabranch_testing.workers import scale_plan
from anabranch_wire.errors import InvalidInput

_IDLE, _NORMAL = os.SCHED_IDLE, os.SCHED_OTHER

pytestmark = pytest.mark.alone


class Group:
    """Loads as it is told to, and notes at which priority; only `load` is there."""

    def __init__(self, served: ServedVersion) -> None:
        self.policies: list[int] = []
        self.served = served
        self.stuck_at: frozenset[int] = frozenset()
        self.stuck = threading.Event()
        self.cancelled = threading.Event()

    def load(self, *_: object, cancellation: Cancellation, **__: object) -> ServedVersion:
        policy = os.sched_getscheduler(0)
        self.policies.append(policy)
        if policy in self.stuck_at:
            cancellation.on_cancel(self.cancelled.set)
            self.stuck.set()
            assert self.cancelled.wait(60), "nobody gave the build up"
            cancellation.check()
        return self.served


def _spare(processors: float) -> Callable[[], Awaitable[float]]:
    async def spare() -> float:
        return processors

    return spare


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(served_version(scale_model(tmp_path)))


async def _build(
    group: Group, folder: Path, *, spare: float, urgent: bool = False, patience_s: float = 60.0
) -> ServedVersion:
    builds = Builds(patience_s, spare=_spare(spare))
    plan = scale_plan(folder, 1)
    return await builds.build(cast(SessionGroup, group), plan, None, urgent=urgent)


@on_loop
async def test_a_build_takes_what_is_left_over(group: Group, tmp_path: Path) -> None:
    assert await _build(group, tmp_path, spare=1.0) is group.served
    assert group.policies == [_IDLE]


@on_loop
async def test_where_nothing_is_left_over_a_build_takes_its_share(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await _build(group, tmp_path, spare=0.05) is group.served

    assert group.policies == [_NORMAL]
    assert [record.__dict__["event"] for record in caplog.records] == ["build_starved"]


@on_loop
async def test_what_is_urgent_looks_at_nothing(group: Group, tmp_path: Path) -> None:
    assert await _build(group, tmp_path, spare=1.0, urgent=True) is group.served
    assert group.policies == [_NORMAL]


@pytest.mark.parametrize("patience_s", [60.0, 0.001])
@on_loop
async def test_an_idle_build_that_gets_no_time_is_begun_again(
    group: Group, tmp_path: Path, patience_s: float
) -> None:
    group.stuck_at = frozenset({_IDLE})

    assert await _build(group, tmp_path, spare=1.0, patience_s=patience_s) is group.served

    assert group.policies == [_IDLE, _NORMAL]
    assert group.cancelled.is_set()


@pytest.mark.parametrize("spare", [1.0, 0.0])
@on_loop
async def test_a_build_that_is_cancelled_ends_early(
    group: Group, tmp_path: Path, spare: float
) -> None:
    group.stuck_at = frozenset({_IDLE, _NORMAL})
    building = asyncio.create_task(_build(group, tmp_path, spare=spare))
    await asyncio.to_thread(group.stuck.wait, 30)

    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building

    assert group.cancelled.is_set()
    assert len(group.policies) == 1


@on_loop
async def test_what_cannot_be_built_says_why(group: Group, tmp_path: Path) -> None:
    def load(*_: object, cancellation: Cancellation, **__: object) -> ServedVersion:
        raise InvalidInput("no graph")

    group.load = load  # type: ignore[method-assign]  # a stand-in's
    with pytest.raises(InvalidInput, match="no graph"):
        await _build(group, tmp_path, spare=1.0)
