"""A remote repository, mirrored again and again: when it is asked, and if it is gone."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from anabranch_server.config import RepositoryConfig, WatchConfig
from anabranch_server.sources import SourceCounts, new_source
from anabranch_server.sources.local_source import LocalSource
from anabranch_server.sources.remote_source import RemoteSource
from anabranch_server.sources.source import NoSource
from anabranch_wire.errors import Unavailable


class Store:
    """A mirror whose store goes and comes."""

    def __init__(self, *, holds_models: bool = False) -> None:
        self.holds_models = holds_models
        self.is_there = True
        self.changed = True
        self.looks = 0

    def look(self) -> bool:
        self.looks += 1
        if not self.is_there:
            raise Unavailable("s3://bucket: gone")
        self.holds_models = True
        return self.changed


class Stage:
    def __init__(self, store: Store, poll_s: float = 0.01) -> None:
        self.store = store
        self.counts = SourceCounts()
        self.pokes = 0
        self.source = RemoteSource(lambda: store, poll_s, self._poke, self.counts, patience_s=5.0)

    def _poke(self) -> None:
        self.pokes += 1


def play(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20.0):
            await work

    asyncio.run(bounded())


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["event"] for record in caplog.records if "event" in record.__dict__]


def test_every_look_that_changes_something_is_told() -> None:
    async def run() -> None:
        stage = Stage(Store())
        await stage.source.begin()
        assert (stage.store.looks, stage.pokes) == (1, 1)
        running = asyncio.create_task(stage.source.run())
        await until(lambda: stage.store.looks >= 3)
        assert stage.pokes >= 2
        stage.store.changed = False
        await stage.source.refresh()
        pokes = stage.pokes
        looks = stage.store.looks
        await until(lambda: stage.store.looks >= looks + 2)
        assert stage.pokes == pokes
        assert stage.counts == SourceCounts(True, 0)
        running.cancel()

    play(run())


def test_a_store_that_goes_is_said_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        stage = Stage(Store())
        await stage.source.begin()
        stage.store.is_there = False
        running = asyncio.create_task(stage.source.run())
        await until(lambda: stage.counts.failures >= 3)
        assert stage.counts.is_reachable is False
        with pytest.raises(Unavailable, match="gone"):
            await stage.source.refresh()
        stage.store.is_there = True
        await until(lambda: stage.counts.is_reachable is True)
        running.cancel()

    with caplog.at_level(logging.INFO):
        play(run())
    assert events(caplog) == ["repository_unreadable", "repository_readable"]


def test_waits_grow_and_differ_while_a_store_is_gone() -> None:
    async def run() -> None:
        stage = Stage(Store(), poll_s=1.0)
        stage.store.is_there = False
        assert stage.source._wait_s() == 1.0
        waits = []
        for _ in range(12):
            with pytest.raises(Unavailable):
                await stage.source.refresh()
            waits.append(stage.source._wait_s())
        assert 1.0 <= waits[0] <= 2.0
        assert all(15.0 <= wait <= 30.0 for wait in waits[6:])
        assert len(set(waits)) == len(waits)
        stage.store.is_there = True
        await stage.source.refresh()
        assert stage.source._wait_s() == 1.0

    play(run())


def test_a_start_with_a_mirror_goes_on_without_the_store(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        stage = Stage(Store(holds_models=True))
        stage.store.is_there = False
        await stage.source.begin()
        assert stage.store.looks == 1

    with caplog.at_level(logging.INFO):
        play(run())
    assert events(caplog) == ["repository_unreadable", "repository_from_cache"]


def test_a_start_without_a_mirror_waits_for_the_store() -> None:
    async def run() -> None:
        stage = Stage(Store())
        stage.store.is_there = False
        beginning = asyncio.create_task(stage.source.begin())
        await until(lambda: stage.store.looks >= 3)
        assert not beginning.done()
        stage.store.is_there = True
        await beginning
        assert stage.pokes == 1

    play(run())


def test_each_repository_has_its_source(tmp_path: Path) -> None:
    folder = RepositoryConfig(tmp_path, None, 5.0)
    remote = RepositoryConfig(tmp_path, None, 5.0, "s3://bucket/models")
    watch, poll = WatchConfig(), WatchConfig(inotify=False)

    async def run() -> None:
        assert isinstance(new_source(folder, watch, lambda: None, None), LocalSource)
        assert isinstance(new_source(remote, watch, lambda: None, None), RemoteSource)
        nothing = new_source(folder, poll, lambda: None, None)
        assert isinstance(nothing, NoSource)
        await nothing.begin()
        await nothing.refresh()
        await nothing.run()

    play(run())
