"""When a model's keeper tries again what failed, and that it rests meanwhile; without processes."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch_server.administration import ActionRequest
from anabranch_server.processes.loader_messages import Found, LoadVersion, Progress
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor import keeper_failures, keeper_switches
from anabranch_server.supervisor.keeper import ModelKeeper
from anabranch_testing.event_loops import on_loop
from anabranch_testing.keepers import KeptServer, kept_server, write_version
from anabranch_testing.stand_ins import until
from anabranch_wire.errors import Internal, Unavailable

RETRY_S = 0.1
FEW = 5
"""Turns that a second without news may have; one that spins has thousands."""


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


@asynccontextmanager
async def serving_one(root: Path, state: Path) -> AsyncIterator[KeptServer]:
    """Serve version 1, published before."""
    write_version(root / "m", 1)
    async with kept_server(root, state) as server:
        yield server


@asynccontextmanager
async def deadly(root: Path, state: Path) -> AsyncIterator[tuple[KeptServer, list[float]]]:
    """The same, and loaders have died of version 2; yields also when they did, each time."""
    async with serving_one(root, state) as server:
        load, died = server.named_loader.load, list[float]()

        async def dying(request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
            if request.version != 2:
                return await load(request, on_progress)
            died.append(asyncio.get_running_loop().time())
            raise Internal("two loaders died of it")

        server.named_loader.load = dying  # type: ignore[method-assign]  # a stand-in's
        write_version(root / "m", 2)
        await server.look()
        yield server, died


async def rests(turns: list[str]) -> bool:
    """Whether keepers do next to nothing for a second, in which much was due to be tried again."""
    del turns[:]
    await asyncio.sleep(10 * RETRY_S)
    return len(turns) <= FEW


@on_loop
async def test_a_version_that_nobody_wants_any_more_wakes_nobody(
    root: Path, state: Path, turns: list[str]
) -> None:
    async with deadly(root, state) as (server, died):
        rolled = await server.admin.act("rollback", "m", ActionRequest(version=1, wait_s=20))
        assert rolled.state == "DONE"
        before = len(died)
        assert await rests(turns)
        assert len(died) == before


@on_loop
async def test_nor_does_one_that_was_passed_by(root: Path, state: Path, turns: list[str]) -> None:
    async with deadly(root, state) as (server, _):
        write_version(root / "m", 3)
        await server.look()
        assert server.served() == ((3,), 3)
        assert await rests(turns)


@on_loop
async def test_nor_does_a_state_that_could_not_be_switched_to_and_is_wanted_no_more(
    root: Path, state: Path, turns: list[str]
) -> None:
    async with serving_one(root, state) as server:
        server.switching.refuse = lambda plan: Unavailable("no worker is there")
        write_version(root / "m", 2)
        await server.look()
        shutil.rmtree(root / "m" / "2")
        await server.look()
        server.switching.refuse = lambda plan: None
        await asyncio.sleep(3 * RETRY_S)
        assert await rests(turns)
        assert server.served() == ((1,), 1)


@on_loop
async def test_a_version_that_loaders_die_of_is_tried_later_and_later(
    root: Path, state: Path
) -> None:
    async with deadly(root, state) as (_, died):
        await until(lambda: len(died) == 4)

    assert are_later_and_later(died)


@on_loop
async def test_so_is_one_that_is_good_but_that_workers_cannot_prepare(
    root: Path, state: Path
) -> None:
    async with serving_one(root, state) as server:
        refused: list[float] = []

        def refuse(plan: StatePlan | None) -> Internal | None:
            if plan is None or 2 not in plan.served:
                return None
            refused.append(asyncio.get_running_loop().time())
            return Internal("ValueError")

        server.switching.refuse = refuse
        write_version(root / "m", 2)
        await server.look()
        await until(lambda: len(refused) == 4)
        server.switching.refuse = lambda plan: None
        await until(lambda: server.served() == ((2,), 2))

    assert are_later_and_later(refused)


def are_later_and_later(times: list[float]) -> bool:
    """Whether each wait was at least as long as it is to be; a busy machine makes any longer."""
    waits = [later - before for before, later in pairwise(times)]
    return all(wait >= RETRY_S * 2**number for number, wait in enumerate(waits))
