"""When a model's keeper tries again what failed, and that it rests meanwhile; without processes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_server.administration import ActionRequest
from anabranch_server.processes.loader_messages import Found, LoadVersion, Progress
from anabranch_server.supervisor import keeper_failures, keeper_switches
from anabranch_server.supervisor.keeper import ModelKeeper
from anabranch_testing.event_loops import on_loop
from anabranch_testing.keepers import KeptServer, kept_server, write_version
from anabranch_testing.stand_ins import until
from anabranch_wire.errors import Internal, Unavailable

RETRY_S = 0.1
FEW = 5
"""Turns that a second without news may have; one that spins has thousands."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything tried again after a moment."""
    monkeypatch.setattr(keeper_failures, "_FIRST_RETRY_S", RETRY_S)
    monkeypatch.setattr(keeper_switches, "_AGAIN_S", RETRY_S)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of models, one for each turn of their keepers."""
    taken: list[str] = []
    turn = ModelKeeper._turn

    async def counted(keeper: ModelKeeper) -> None:
        taken.append(keeper.kept.name)
        await turn(keeper)

    monkeypatch.setattr(ModelKeeper, "_turn", counted)
    return taken


def refuse(server: KeptServer, version: int) -> list[int]:
    """Have loaders die of a version; returns a list that gets it each time."""
    load, tried = server.named_loader.load, list[int]()

    async def dying(request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        if request.version == version:
            tried.append(version)
            raise Internal("two loaders died of it")
        return await load(request, on_progress)

    server.named_loader.load = dying  # type: ignore[method-assign]
    return tried


@on_loop
async def test_a_version_that_nobody_wants_any_more_wakes_nobody(
    root: Path, state: Path, turns: list[str]
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        tried = refuse(server, 2)
        write_version(root / "m", 2)
        await server.look()
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert rolled.state == "DONE"
        del turns[:]
        await asyncio.sleep(1.0)
        assert len(turns) <= FEW
        assert len(tried) == 1


@on_loop
async def test_nor_does_one_that_was_passed_by(root: Path, state: Path, turns: list[str]) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        refuse(server, 2)
        write_version(root / "m", 2)
        await server.look()
        write_version(root / "m", 3)
        await server.look()
        assert server.served() == ((3,), 3)
        del turns[:]
        await asyncio.sleep(1.0)
        assert len(turns) <= FEW


@on_loop
async def test_nor_does_a_state_that_could_not_be_switched_to_and_is_wanted_no_more(
    root: Path, state: Path, turns: list[str]
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        server.switching.refuse = lambda plan: Unavailable("no worker is there")
        write_version(root / "m", 2)
        await server.look()
        for path in sorted((root / "m" / "2").iterdir()):
            path.unlink()
        (root / "m" / "2").rmdir()
        await server.look()
        server.switching.refuse = lambda plan: None
        await asyncio.sleep(3 * RETRY_S)
        del turns[:]
        await asyncio.sleep(1.0)
        assert len(turns) <= FEW
        assert server.served() == ((1,), 1)


@on_loop
async def test_a_version_that_loaders_die_of_is_tried_later_and_later(
    root: Path, state: Path, turns: list[str]
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        tried = refuse(server, 2)
        write_version(root / "m", 2)
        await server.look()
        await until(lambda: len(tried) == 3)  # 0.1 s and 0.2 s later
        del turns[:]
        await asyncio.sleep(3 * RETRY_S)
        assert len(tried) == 3
        assert len(turns) <= FEW


@on_loop
async def test_so_is_one_that_is_good_but_that_workers_cannot_prepare(
    root: Path, state: Path, turns: list[str]
) -> None:
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        requests = server.named_loader.requests
        server.switching.refuse = lambda plan: (
            Internal("ValueError") if plan is not None and 2 in plan.served else None
        )
        write_version(root / "m", 2)
        await server.look()
        await until(lambda: requests.count(("m", 2)) == 3)
        await asyncio.sleep(3 * RETRY_S)
        assert requests.count(("m", 2)) == 3
        server.switching.refuse = lambda plan: None
        await until(lambda: server.served() == ((2,), 2))
