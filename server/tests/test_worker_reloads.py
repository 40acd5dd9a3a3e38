"""Many reloads in one worker: what it has of descriptors, threads and memory stays as it was."""

import time
from pathlib import Path
from typing import Final

import msgspec
import pytest

from anabranch_server.processes.messages import Hello, Released
from anabranch_server.processes.plans import VersionPlan
from anabranch_testing.lengths import length
from anabranch_testing.workers import GROUP, RunningWorker, scale_plan, started_worker, state_of

RELOADS: Final = -(-length(16, 1000, "ANABRANCH_RELOADS") // 16) * 16
"""The suite's number shows a leak of a descriptor, a thread or a session; a soak makes 1000.
A multiple of 16 ends with the group that it began with."""

SLACK_BYTES: Final = 8 << 20
"""Caches of doors remember up to 1024 heads of messages, of whatever loads, and one version may be
on its way out. It has half of that in weights alone, so a leak is many times as much."""


@pytest.mark.soak
def test_reloads_leave_nothing_behind(tmp_path: Path) -> None:
    weights = 4 << 20
    plans = [scale_plan(tmp_path, number, padding=weights) for number in (1, 2, 3)]
    with started_worker(tmp_path) as worker:
        worker.hear(Hello)
        worker.switch(1, state_of(plans[0]))
        worker.hear(Released)
        worker.join()
        for epoch in range(2, 12):  # after which the allocator has what it will have
            reload(worker, epoch, plans, epoch)
        descriptors, threads, resident = settled(worker)

        for epoch in range(12, 12 + RELOADS):
            reload(worker, epoch, plans, epoch)
            if epoch % 10 == 0:
                worker.new_supervisor()
        after = settled(worker)

    assert after[:2] == (descriptors, threads)
    print(f"\nafter {RELOADS} reloads: {after[2] - resident:+,} bytes of {resident:,}")
    assert after[2] - resident < SLACK_BYTES


def reload(worker: RunningWorker, epoch: int, plans: list[VersionPlan], turn: int) -> None:
    """Switch to another version, and to another group every eighth time; and score."""
    plan = msgspec.structs.replace(plans[turn % 3], delta=epoch)
    group = msgspec.structs.replace(GROUP, executors=1 + turn // 8 % 2)
    worker.switch(epoch, state_of(plan, group=group))
    assert worker.score().version == str(plan.version)
    worker.hear(Released)


def settled(worker: RunningWorker) -> tuple[int, int, int]:
    """Figures once freeing, which has the lowest priority, is over."""
    end_s = time.monotonic() + 20
    figures, still = worker.figures(), 0
    while still < 10:
        assert time.monotonic() < end_s, "it does not come to rest"
        time.sleep(0.05)
        before, figures = figures, worker.figures()
        still = still + 1 if figures[:2] == before[:2] else 0
    return figures
