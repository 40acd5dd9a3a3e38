"""A real loader process behind a real link: good, broken and deadly versions."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.memory import OutOfRoom
from anabranch_publish import publish_version
from anabranch_server.loader.building import GraphBuilder
from anabranch_server.loader.examination import examine
from anabranch_server.loader.row_cache import RowCache
from anabranch_server.loader.standing import be_first_to_go
from anabranch_server.processes.arrays import array_of
from anabranch_server.processes.loader_messages import LoadVersion, Progress, Refused
from anabranch_server.supervisor.loader_link import LoaderLink
from anabranch_testing.event_loops import on_loop
from anabranch_testing.graphs import scale_model
from anabranch_testing.loaders import started_loader
from anabranch_wire.errors import Corrupt, Internal, InvalidInput, Unavailable


def ignore(progress: Progress) -> None:
    """Take what a loader says of its progress."""


def request(folder: Path, version: int = 1, serving: str = "", **changes: object) -> LoadVersion:
    """Ask for a version of the model `scale`."""
    told: dict[str, object] = {
        "number": 0, "model": "scale", "version": version, "model_path": str(folder),
        "version_path": str(folder / str(version)), "serving_yaml": serving, "priority": "idle",
        "available_bytes": None,
    }  # fmt: skip
    return LoadVersion(**(told | changes))  # type: ignore[arg-type]  # of many types


def how_readily_it_goes(pid: int) -> int:
    """Return what a process adds to the kernel's wish to end it."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@asynccontextmanager
async def linked(
    cache: Path, fresh_s: float = 20.0, most_answers: int = 100
) -> AsyncIterator[tuple[LoaderLink, list[int]]]:
    """A link whose loaders this process starts; yields it and the pids of them."""
    pids: list[int] = []

    def start(gives_way: bool) -> None:
        pid, channel, pidfd = started_loader(cache)
        pids.append(pid)
        link.attach(pid, channel, pidfd)

    link = LoaderLink(start, fresh_s=fresh_s, most_answers=most_answers, starved_s=3600.0)
    try:
        yield link, pids
    finally:
        link.close()
        for pid in pids:
            await asyncio.to_thread(os.waitpid, pid, 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "scale"
    scale_model(folder / "1")
    return folder


@on_loop
async def test_a_good_version_is_found_with_all_that_serving_it_takes(model: Path) -> None:
    phases: list[str] = []
    async with linked(model.parent / "cache") as (link, pids):
        found = await link.load(request(model), lambda progress: phases.append(progress.phase))
        assert link.pid == pids[0]
        assert os.sched_getscheduler(pids[0]) == os.SCHED_IDLE
        assert os.getpriority(os.PRIO_PROCESS, pids[0]) == 19
        assert how_readily_it_goes(pids[0]) > 0

    plan = found.version
    assert phases == ["fetching", "verifying", "importing", "comparing", "building", "warming"]
    assert set(found.phase_ms) == set(phases[1:])
    assert [rows for rows, _ in plan.costs][:3] == [1, 2, 4]
    assert all(seconds > 0 for _, seconds in plan.costs)
    assert (plan.model, plan.version, plan.delta) == ("scale", 1, 0)
    assert plan.optimized
    assert Path(plan.path).is_relative_to(model.parent / "cache" / "graphs")
    assert (model / plan.path).stat().st_size > 0
    assert plan.weight_bytes == (model / "1" / "model.onnx").stat().st_size
    assert plan.rows.independent
    assert [tensor.name for tensor in plan.inputs] == ["x"]
    assert plan.identity.startswith("sha256:")
    assert (plan.step, plan.event_time, plan.published) == (None, None, None)
    example = array_of(plan.examples[0]["x"])
    assert example.dtype == np.float32
    assert example.shape[1:] == (4,)


@on_loop
async def test_what_cannot_be_cached_is_built_from_the_repository_and_said(model: Path) -> None:
    (model.parent / "cache").write_bytes(b"a file where the folder should be")
    async with linked(model.parent / "cache") as (link, _):
        plan = (await link.load(request(model), ignore)).version
    assert not plan.optimized
    assert plan.path == str((model / "1" / "model.onnx").resolve())
    assert any("cache folder" in note for note in plan.notes)


@on_loop
async def test_a_later_loader_finds_what_was_built(model: Path) -> None:
    paths = []
    for _ in range(2):
        async with linked(model.parent / "cache") as (link, _):
            paths.append((await link.load(request(model), ignore)).version.path)
    first, second = (Path(path) for path in paths)
    assert first == second
    assert len(list(first.parent.parent.iterdir())) == 1


@on_loop
async def test_a_manifest_says_step_event_time_and_when_it_was_published(
    tmp_path: Path,
) -> None:
    scale_model(tmp_path / "made")
    published = publish_version(
        tmp_path / "scale", tmp_path / "made" / "model.onnx", version=7, step=12, event_time=34.5
    )
    async with linked(tmp_path / "cache") as (link, _):
        found = await link.load(request(tmp_path / "scale", 7), ignore)
    assert (found.version.step, found.version.event_time) == (12, 34.5)
    assert found.version.published is not None
    assert published is not None


@on_loop
async def test_refusals_keep_their_kind_and_the_loader_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "scale"
    scale_model(tmp_path / "made")
    publish_version(folder, tmp_path / "made" / "model.onnx", version=1)
    graph = folder / "1" / "model.onnx"
    whole = graph.read_bytes()
    async with linked(tmp_path / "cache") as (link, pids):
        graph.write_bytes(whole[:-1])
        with pytest.raises(Corrupt, match=r"model\.onnx: expected \d+ bytes, found"):
            await link.load(request(folder), ignore)
        graph.write_bytes(whole)
        with pytest.raises(InvalidInput, match=r"serving\.yaml: line 1: nonsense"):
            await link.load(request(folder, serving="nonsense: 1"), ignore)
        with pytest.raises(OutOfRoom, match="the machine has 10 left") as caught:
            await link.load(request(folder, available_bytes=10), ignore)
        assert caught.value.tables == 0
        assert (await link.load(request(folder), ignore)).version.version == 1
    assert len(pids) == 1


@on_loop
async def test_a_loader_that_dies_is_replaced_and_the_version_tried_once_more(
    model: Path,
) -> None:
    async with linked(model.parent / "cache") as (link, pids):

        def kill_the_first(progress: Progress) -> None:
            if len(pids) == 1 and progress.phase == "fetching":
                os.kill(pids[0], signal.SIGKILL)

        found = await link.load(request(model), kill_the_first)
    assert found.version.version == 1
    assert len(pids) == 2


@on_loop
async def test_a_version_that_kills_every_loader_is_refused_and_the_next_one_served(
    model: Path,
) -> None:
    async with linked(model.parent / "cache") as (link, pids):

        def kill(progress: Progress) -> None:
            os.kill(pids[-1], signal.SIGKILL)

        with pytest.raises(Internal, match="died of this one 2 times; it may have run out of"):
            await link.load(request(model), kill)
        assert len(pids) == 2
        assert link.pid is None
        assert (await link.load(request(model), ignore)).version.version == 1
    assert len(pids) == 3


@on_loop
async def test_requests_wait_for_each_other_and_a_cancelled_one_ends_its_loader(
    model: Path,
) -> None:
    scale_model(model / "2")
    async with linked(model.parent / "cache") as (link, pids):
        begun = asyncio.Event()
        first = asyncio.create_task(link.load(request(model), lambda progress: begun.set()))
        second = asyncio.create_task(link.load(request(model, 2), ignore))
        await begun.wait()
        first.cancel()
        assert (await second).version.version == 2
        assert first.cancelled()
    assert len(pids) == 2


@on_loop
async def test_a_loader_that_may_be_about_to_end_is_not_asked(model: Path) -> None:
    async with linked(model.parent / "cache", fresh_s=0.0) as (link, pids):
        for _ in range(2):
            assert (await link.load(request(model), ignore)).version.version == 1
    assert len(pids) == 2


@on_loop
async def test_a_loader_is_replaced_once_it_has_answered_often(model: Path) -> None:
    async with linked(model.parent / "cache", most_answers=2) as (link, pids):
        for _ in range(5):
            assert (await link.load(request(model), ignore)).version.version == 1
    assert len(pids) == 3


@on_loop
async def test_without_a_launcher_the_reason_is_said(model: Path) -> None:
    link = LoaderLink(lambda gives_way: None, start_timeout_s=0.01)
    with pytest.raises(Unavailable, match=r"no loader was started within 0\.01 s"):
        await link.load(request(model), ignore)


@on_loop
async def test_a_loader_without_work_ends_by_itself_and_so_does_one_without_supervisor(
    tmp_path: Path,
) -> None:
    for patience_s, close in ((0.0, False), (60.0, True)):
        pid, channel, pidfd = started_loader(tmp_path, patience_s)
        if close:
            os.close(channel)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        os.close(pidfd)
        if not close:
            os.close(channel)


def test_a_process_without_proc_stays_as_it_is(tmp_path: Path) -> None:
    be_first_to_go(tmp_path / "missing")
    be_first_to_go(tmp_path)
    assert int((tmp_path / "oom_score_adj").read_text()) > 0


@pytest.mark.parametrize("call", ["listdir", "stat", "lstat"])
def test_a_file_system_that_fails_for_a_while_makes_a_version_unavailable(
    model: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fails(path: object, *args: object, **kwargs: object) -> object:
        if str(path).startswith(str(model / "1")):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return works(path, *args, **kwargs)

    works = getattr(os, call)
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        found = examine(
            request(model),
            ignore,
            GraphBuilder(model.parent / "cache"),
            RowCache(model.parent / "cache", reserve=0.25),
        )

    assert isinstance(found, Refused)
    assert (found.kind, str(model) in found.error) == ("Unavailable", False)
    assert "Input/output error" in found.error
