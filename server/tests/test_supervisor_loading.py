"""Keepers with real loader processes: good, corrupt and deadly versions beside each other."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch_publish import publish_version
from anabranch_server.administration import ActionRequest
from anabranch_server.supervisor import keeper_failures
from anabranch_server.supervisor.loader_link import LoaderLink
from anabranch_testing.event_loops import on_loop
from anabranch_testing.graphs import scale_model
from anabranch_testing.keepers import KeptServer, kept_server
from anabranch_testing.loaders import started_loader
from anabranch_testing.published_deltas import write_delta
from anabranch_testing.stand_ins import until


@asynccontextmanager
async def really_kept(
    tmp_path: Path, starved_s: float = 60.0
) -> AsyncIterator[tuple[KeptServer, list[int]]]:
    """A server whose versions real loaders look at; yields it and the pids of those."""
    pids: list[int] = []

    def start(gives_way: bool) -> None:
        pid, channel, pidfd = started_loader(cache=tmp_path / "cache")
        pids.append(pid)
        link.attach(pid, channel, pidfd)

    link = LoaderLink(start, starved_s=starved_s)
    try:
        async with kept_server(tmp_path / "models", tmp_path / "state", loader=link) as server:
            yield server, pids
    finally:
        link.close()
        for pid in pids:
            await asyncio.to_thread(os.waitpid, pid, 0)


def publish(tmp_path: Path, version: int) -> Path:
    """Publish a version of the model `m` and return its ONNX file."""
    (tmp_path / "models").mkdir(exist_ok=True)
    made = scale_model(tmp_path / f"made{version}").path
    publish_version(tmp_path / "models" / "m", made, version=version)
    return tmp_path / "models" / "m" / str(version) / "model.onnx"


def kill_as_they_come(pids: list[int], last: int) -> None:
    """Kill loaders from the first one on, until so many are dead."""
    killed = 0
    while killed < last:
        if killed < len(pids):
            os.kill(pids[killed], signal.SIGKILL)
            killed += 1
        time.sleep(0.001)


def scheduling(pid: int) -> tuple[int, int]:
    """The policy and the nice value of a process."""
    return os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)


@on_loop
async def test_a_corrupt_version_is_named_and_served_once_it_is_whole(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    graph = publish(tmp_path, 2)
    whole = graph.read_bytes()
    graph.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    async with really_kept(tmp_path) as (server, pids):
        assert server.served() == ((1,), 1)
        error = server.admin.model("m").last_error
        assert error is not None
        assert (error.version, error.reason) == (2, "checksum")
        assert error.error.startswith("model.onnx: expected sha256")
        graph.write_bytes(whole)
        await server.look()
        assert server.served() == ((2,), 2)
        phases = {phase for _, _, phase in server.counts.phases}
        assert {"verifying", "importing", "comparing", "switching"} <= phases
        assert len(pids) == 1


@on_loop
async def test_a_killed_loader_costs_nothing_but_time(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    async with really_kept(tmp_path) as (server, pids):
        publish(tmp_path, 2)
        os.kill(pids[0], signal.SIGSTOP)
        begun = await server.admin.act("load", "m", ActionRequest(version=2, wait_s=0))
        assert begun.state == "RUNNING"
        os.kill(pids[0], signal.SIGKILL)
        await server.settled()
        assert server.admin.operation(begun.id).state == "DONE"
        assert server.served() == ((2,), 2)
        assert len(pids) == 2


@on_loop
async def test_a_version_whose_loaders_were_killed_is_tried_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_failures, "_FIRST_RETRY_S", 1.0)
    publish(tmp_path, 1)
    async with really_kept(tmp_path) as (server, pids):
        publish(tmp_path, 2)
        os.kill(pids[0], signal.SIGSTOP)
        looking = asyncio.ensure_future(server.look())
        await until(lambda: 2 in [one.version for one in server.admin.model("m").versions])
        await asyncio.to_thread(kill_as_they_come, pids, 2)
        await until(lambda: server.counts.failures["m", "internal"] == 1)
        await until(lambda: server.served() == ((2,), 2))
        await looking


@on_loop
async def test_a_loader_that_gets_no_processor_is_followed_by_one_that_does(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    async with really_kept(tmp_path, starved_s=0.5) as (server, pids):
        publish(tmp_path, 2)
        os.kill(pids[-1], signal.SIGSTOP)  # as if everybody else came first
        loaders = len(pids)
        done = await server.admin.act("load", "m", ActionRequest(version=2, wait_s=60))
        assert (done.state, done.error) == ("DONE", None)
        assert server.served() == ((2,), 2)
        assert len(pids) == loaders + 1
        assert scheduling(pids[-1]) == (os.SCHED_OTHER, 10)
        publish(tmp_path, 3)
        done = await server.admin.act("load", "m", ActionRequest(version=3, wait_s=60))
        assert done.state == "DONE"


@on_loop
async def test_deltas_that_get_no_processor_are_applied_at_low_priority_for_a_while(
    tmp_path: Path,
) -> None:
    publish(tmp_path, 1)
    async with really_kept(tmp_path) as (server, pids):
        publish(tmp_path, 2)
        await server.look()
        assert scheduling(pids[-1]) == (os.SCHED_IDLE, 19)
        os.kill(pids[-1], signal.SIGSTOP)  # as if everybody else came first
        write_delta(tmp_path / "models" / "m" / "2", 1)
        await server.look()
        assert server.counts.failures["m", "wrong_base"] == 1  # a loader has looked at it
        assert len(pids) == 2
        for _ in range(2):
            await server.admin.act("reload", "m", ActionRequest(force=True, wait_s=60))
        assert len(pids) == 2
        assert scheduling(pids[-1]) == (os.SCHED_OTHER, 10)
        publish(tmp_path, 3)
        await server.look()
        await until(lambda: server.served() == ((3,), 3))
        assert scheduling(pids[1]) == (os.SCHED_IDLE, 19)  # it may have been replaced for deltas


@on_loop
async def test_an_action_that_is_cancelled_ends_its_loader(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    async with really_kept(tmp_path) as (server, pids):
        publish(tmp_path, 2)
        os.kill(pids[-1], signal.SIGSTOP)
        await server.admin.act("load", "m", ActionRequest(version=2, wait_s=0))
