"""Changes in a repository on this machine, as the kernel tells of them."""

import asyncio
import errno
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_server.sources import local_source
from anabranch_server.sources.folder_watches import FolderWatches
from anabranch_server.sources.inotify import OVERFLOW, Event, Inotify
from anabranch_server.sources.local_source import LocalSource, file_system
from anabranch_testing.published_deltas import write_delta


@pytest.fixture
def inotify() -> Iterator[Inotify]:
    queue = Inotify()
    yield queue
    queue.close()
    queue.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "ctr" / "1").mkdir(parents=True)
    return folder


class Watched:
    """A repository with its watches."""

    def __init__(self, inotify: Inotify, root: Path, only: tuple[str, ...] | None = None) -> None:
        self.exhausted = 0
        self.root = root
        self._inotify = inotify
        self.watches = FolderWatches(inotify, str(root), only, self._exhaust)
        self.watches.begin()

    def _exhaust(self) -> None:
        self.exhausted += 1

    @property
    def paths(self) -> set[str]:
        return {os.path.relpath(path, self.root) for path in self.watches.paths}

    def has_news(self) -> bool:
        return self.watches.take(self._inotify.read())


def test_what_publishes_is_news(inotify: Inotify, root: Path) -> None:
    watched = Watched(inotify, root)
    assert watched.paths == {".", "ctr", "ctr/1"}
    assert not watched.has_news()

    (root / "ctr" / "1" / ".manifest").write_text("{}")
    (root / "ctr" / "1" / "model.onnx").write_text("")
    assert not watched.has_news()
    os.link(root / "ctr" / "1" / ".manifest", root / "ctr" / "1" / "manifest.json")
    assert watched.has_news()
    (root / "ctr" / "serving.yaml").write_text("format: 1\n")
    assert watched.has_news()
    (root / "ctr" / "2").mkdir()
    assert watched.has_news()
    (root / "cvr").mkdir()
    assert watched.has_news()
    assert watched.paths == {".", "ctr", "ctr/1", "ctr/2", "cvr"}
    shutil.rmtree(root / "ctr" / "2")
    assert watched.has_news()
    assert watched.paths == {".", "ctr", "ctr/1", "cvr"}


def test_deltas_are_watched_until_they_are_published(inotify: Inotify, root: Path) -> None:
    for number in range(1, 30):
        write_delta(root / "ctr" / "1", number)
    watched = Watched(inotify, root)
    assert watched.paths == {".", "ctr", "ctr/1", "ctr/1/deltas"}

    (root / "ctr" / "1" / "deltas" / "00000030" / ("a" * 16)).mkdir(parents=True)
    watched.has_news()
    assert "ctr/1/deltas/00000030" in watched.paths
    (root / "ctr" / "1" / "deltas" / "00000030" / ("a" * 16) / "0000.safetensors").touch()
    assert not watched.has_news()
    write_delta(root / "ctr" / "1", 30)
    assert watched.has_news()
    assert not watched.has_news()  # that the watch has ended
    assert watched.paths == {".", "ctr", "ctr/1", "ctr/1/deltas"}


def test_what_came_before_its_folder_was_watched_is_seen(inotify: Inotify, root: Path) -> None:
    watched = Watched(inotify, root)
    folder = root / "new" / "3"
    folder.mkdir(parents=True)
    write_delta(folder, 1)
    (folder / "deltas" / "00000002").mkdir()

    assert watched.has_news()

    assert watched.paths >= {"new", "new/3", "new/3/deltas", "new/3/deltas/00000002"}
    assert "new/3/deltas/00000001" not in watched.paths
    write_delta(folder, 2)
    assert watched.has_news()


def test_dead_attempts_are_watched_only_while_they_are_few(inotify: Inotify, root: Path) -> None:
    deltas = root / "ctr" / "1" / "deltas"
    deltas.mkdir()
    watched = Watched(inotify, root)
    for number in range(1, 30):
        (deltas / f"{number:08}").mkdir()
        watched.has_news()
    watched.has_news()
    names = {path.rpartition("/")[2] for path in watched.paths if "deltas/" in path}
    assert names == {f"{number:08}" for number in range(22, 30)}


def test_only_models_that_are_served_are_watched(inotify: Inotify, root: Path) -> None:
    watched = Watched(inotify, root, only=("ctr",))
    (root / "cvr" / "1").mkdir(parents=True)
    (root / "some file").touch()
    assert not watched.has_news()
    assert watched.paths == {".", "ctr", "ctr/1"}


def test_an_overflow_sets_all_watches_again(inotify: Inotify, root: Path) -> None:
    watched = Watched(inotify, root)
    (root / "cvr" / "1").mkdir(parents=True)
    inotify.read()  # is lost
    assert watched.watches.take([Event(-1, OVERFLOW, "")])
    assert watched.paths >= {"cvr", "cvr/1"}


def test_no_more_watches_are_said_once(
    inotify: Inotify, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = inotify.add

    def add(folder: str) -> int:
        if folder.endswith("1") or folder.endswith("2"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(folder)

    monkeypatch.setattr(inotify, "add", add)
    (root / "ctr" / "2").mkdir()
    watched = Watched(inotify, root)
    assert (watched.paths, watched.exhausted) == ({".", "ctr"}, 1)


def test_a_folder_that_has_gone_is_not_watched(inotify: Inotify, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        inotify.add(str(root / "none"))
    (root / "file").touch()
    with pytest.raises(NotADirectoryError):
        inotify.add(str(root / "file"))


# --- the source ----------------------------------------------------------------------------------


async def until(is_so: asyncio.Event) -> float:
    begin = time.monotonic()
    async with asyncio.timeout(10.0):
        await is_so.wait()
    is_so.clear()
    return time.monotonic() - begin


def test_a_published_delta_pokes_at_once(root: Path) -> None:
    async def publish() -> None:
        poked = asyncio.Event()
        source = LocalSource(root, None, poked.set)
        await source.begin()
        await source.refresh()
        running = asyncio.create_task(source.run())
        await until(poked)  # the watches are set
        for number in (1, 2, 3):
            await asyncio.to_thread(write_delta, root / "ctr" / "1", number)
            await until(poked)
            await asyncio.sleep(0.05)
            poked.clear()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(publish())


@pytest.mark.parametrize("how", ["kind", "instances"])
def test_what_cannot_be_watched_is_said_once(
    root: Path, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_more() -> Inotify:
        raise OSError(errno.EMFILE, "Too many open files")

    if how == "kind":
        monkeypatch.setattr(local_source, "file_system", lambda path: "nfs4")
    else:
        monkeypatch.setattr(local_source, "Inotify", no_more)
    with caplog.at_level(logging.WARNING):
        asyncio.run(LocalSource(root, None, lambda: None).run())
    (record,) = caplog.records
    assert record.__dict__["event"] == "inotify_unavailable"
    assert ("nfs4" in record.message) == (how == "kind")


def test_the_kind_of_a_file_system_is_known(tmp_path: Path) -> None:
    assert file_system(Path("/proc")) == "proc"
    assert file_system(tmp_path / "none") == ""
