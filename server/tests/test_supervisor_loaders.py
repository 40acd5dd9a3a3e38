"""Two real loader processes: deltas go on while a version is looked at, in one cache folder."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from anabranch_publish import Publisher, publish_version
from anabranch_server.processes.messages import Purpose
from anabranch_server.supervisor.loaders import Loaders
from anabranch_testing.event_loops import on_loop
from anabranch_testing.graphs import scale_model
from anabranch_testing.keepers import KeptServer, kept_server
from anabranch_testing.loaders import started_loader


@dataclass
class Cast:
    """The loaders of a server, and who was started for what."""

    cache: Path
    in_use: list[str] = field(default_factory=list)
    pids: list[tuple[Purpose, int]] = field(default_factory=list)
    stopped: set[Purpose] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.loaders = Loaders(self.start, lambda: self.in_use)
        self.give_way: list[bool] = []

    def start(self, purpose: Purpose, gives_way: bool) -> None:
        self.give_way.append(gives_way)
        pid, channel, pidfd = started_loader(self.cache)
        self.pids.append((purpose, pid))
        if purpose in self.stopped:
            os.kill(pid, signal.SIGSTOP)
        self.loaders.attach(purpose, pid, channel, pidfd)

    def go_on(self) -> None:
        for _, pid in self.pids:
            os.kill(pid, signal.SIGCONT)
        self.stopped.clear()


@asynccontextmanager
async def cast_in(cache: Path) -> AsyncIterator[Cast]:
    cast = Cast(cache)
    try:
        yield cast
    finally:
        cast.go_on()
        cast.loaders.close()
        for _, pid in cast.pids:
            await asyncio.to_thread(os.waitpid, pid, 0)


def publish(root: Path, model: str, version: int) -> Path:
    """Publish a version of a model and return its folder."""
    root.mkdir(exist_ok=True)
    made = scale_model(root.parent / f"made-{model}-{version}").path
    publish_version(root / model, made, version=version)
    return root / model / str(version)


def publish_delta(folder: Path, factor: float) -> None:
    """Publish the next delta of a version."""
    with Publisher(folder.parent, version=int(folder.name)) as publisher:
        draft = publisher.delta()
        draft.dense({"w": np.full((4, 1), factor, np.float32)})
        draft.publish()


async def wait_for(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110 (what is waited for happens in other processes)
            await asyncio.sleep(0.01)


def delta_of(server: KeptServer, model: str) -> int:
    state = server.switching.states[model]
    assert state is not None
    return next(one.delta for one in state.versions if one.version == state.default)


@on_loop
async def test_deltas_of_one_model_go_on_while_a_version_of_another_is_looked_at(
    tmp_path: Path,
) -> None:
    root = tmp_path / "models"
    folder = publish(root, "quick", 1)
    publish(root, "slow", 1)
    async with (
        cast_in(tmp_path / "cache") as cast,
        kept_server(root, tmp_path / "state", loader=cast.loaders) as server,
    ):
        cast.loaders.close()
        cast.stopped.add("versions")  # the next one takes for ever
        publish(root, "slow", 2)
        await server.watcher.look()
        await wait_for(lambda: [one for one, _ in cast.pids].count("versions") == 2)
        assert cast.give_way == [False, True]  # something is served by now
        for number in (1, 2, 3):
            publish_delta(folder, float(number))
            await server.watcher.look()
            await wait_for(lambda: delta_of(server, "quick") == number)  # noqa: B023
        assert server.served("slow") == ((1,), 1)
        assert server.keeping.keeper("slow").kept.loading == 2

        cast.go_on()
        await server.settled()
        assert server.served("slow") == ((2,), 2)
        assert delta_of(server, "quick") == 3


@on_loop
async def test_each_purpose_has_a_loader_of_its_own_and_both_end(tmp_path: Path) -> None:
    root = tmp_path / "models"
    publish_delta(publish(root, "m", 1), 1.0)
    async with cast_in(tmp_path / "cache") as cast:
        assert cast.loaders.pids == {"versions": None, "deltas": None}
        async with kept_server(root, tmp_path / "state", loader=cast.loaders) as server:
            assert delta_of(server, "m") == 1
            assert cast.loaders.pids == dict(cast.pids)
            assert len(cast.pids) == 2
