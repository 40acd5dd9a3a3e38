"""A supervisor process: from its boot document to its end.

It never answers a scoring request, and nothing that it does stops one: workers serve on while it
is replaced. A new one takes over what they serve.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch_model_store.memory import available_bytes
from anabranch_runtime.counters import Series
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.cores import usable_cores
from anabranch_server.metrics.totals import Totals
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.channel import Channel, ChannelClosed
from anabranch_server.processes.messages import (
    Attached,
    Drain,
    FromLauncher,
    LoaderAttached,
    Purpose,
    StartLoader,
)
from anabranch_server.sources import Source, SourceCounts, new_source
from anabranch_server.supervisor.administrator import Administrator
from anabranch_server.supervisor.announcement import Announcement
from anabranch_server.supervisor.effects import Change
from anabranch_server.supervisor.holds import Records
from anabranch_server.supervisor.keeper_counts import ReloadCounts
from anabranch_server.supervisor.keeping import Keeping
from anabranch_server.supervisor.loaders import Loaders
from anabranch_server.supervisor.models import ModelAdministration
from anabranch_server.supervisor.overview import Overview
from anabranch_server.supervisor.scrapes import Scrapes, Sources, reload_series
from anabranch_server.supervisor.stores import Stores
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.tables import TableAdministration
from anabranch_server.supervisor.tracing import Tracer
from anabranch_server.supervisor.transactions import Transactions, TransactionSettings
from anabranch_server.supervisor.vanishing import Vanishing
from anabranch_server.supervisor.watching import Look, Scanner, Watcher
from anabranch_server.supervisor.workers import Pool
from anabranch_wire.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch_server.supervisor.doors import SideDoors

__all__ = ["SupervisorProcess"]

_log = logging.getLogger(__name__)

_UPKEEP_S: Final = 0.5
_LINGER_S: Final = 10.0
"""What workers get beyond `drain_s`, before they are left to themselves."""
_ORDER_S: Final = 5.0
"""How long after a signal the launcher's order may come, if the whole server is to stop."""


class SupervisorProcess:
    """Looks after a server from `run` to its end. Belongs to the event loop that runs when made.

    Args:
        boot: what this process was told; its descriptors belong to this object.
    """

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._config = config = boot.config
        self._version = version("anabranch")
        self._loop = asyncio.get_running_loop()
        fds = boot.descriptors
        words = SharedWords.open(fds["epochs"], writable=True)
        os.close(fds["epochs"])
        os.close(fds["balance"])  # workers keep the balance among themselves
        self._launcher: Channel[FromLauncher] = Channel(
            socket.socket(fileno=fds["launcher"]), FromLauncher
        )
        self._stopping = asyncio.Event()
        self._ordered = asyncio.Event()
        self._exit_code = 0
        self._counts = ReloadCounts()
        self._vanishing = Vanishing()
        self._totals = Totals(
            Path(boot.run_dir) / "totals", boot.launch, lambda: reload_series(self._counts)
        )
        self._stores = Stores(config.store.base, boot.incarnation, available_bytes)
        self._transactions = Transactions(
            words,
            TransactionSettings(
                prepare_timeout_s=config.switch.prepare_timeout_s,
                stall_s=config.switch.stall_s,
                incarnation=boot.incarnation,
                expected_workers=config.workers,
            ),
            participants=[self._stores],
            on_published=self._published,
            on_missed=lambda model: self._keeping.miss(model),
        )
        self._stores.attach(self._transactions)
        self._pool = Pool(self._transactions, self._totals, config.switch.stall_s)
        self._loaders = Loaders(self._start_loader, lambda: self._keeping.paths())
        self._keeping = Keeping(
            self._surroundings(), config.repository.models, config.repository.settle_s
        )
        self._watcher = self._new_watcher()
        self._remote = None if config.repository.url is None else SourceCounts()
        self._source = self._new_source()
        self._models = ModelAdministration(self._keeping, self._look, boot.incarnation)
        self._announcement = Announcement(boot, os.getpid())
        self._overview = Overview(
            self._pool,
            self._transactions,
            self._keeping.first_look_done,
            allow_empty=config.allow_empty,
            has_been_ready=self._announcement.was_made,
        )
        self._doors: SideDoors | None = None

    async def run(self) -> int:
        """Look after the server until it is to stop and the last worker is gone.

        Returns:
            The exit code.
        """
        self._launcher.attach(self._loop, self._on_launcher, self._on_launcher_gone)
        tasks = [
            asyncio.create_task(self._guard(self._keep()), name="keeping"),
            asyncio.create_task(self._guard(self._open()), name="doors"),
            asyncio.create_task(self._guard(self._upkeep()), name="upkeep"),
        ]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loaders.close()
        if self._exit_code == 0:
            await self._wait_for_workers()
        self._transactions.close()
        self._pool.close()
        await self._stores.close()
        self._launcher.close()
        if self._doors is not None:
            await self._doors.close()
        _log.info("stopped", extra={"event": "stopped"})
        return self._exit_code

    async def _open(self) -> None:
        """Open the doors; what they need is imported while models begin to load."""
        await asyncio.to_thread(__import__, "anabranch_server.supervisor.doors")
        from anabranch_server.supervisor.doors import SideDoors

        boot, fds = self._boot, self._boot.descriptors
        self._doors = SideDoors(
            socket.socket(fileno=fds["metrics"]),
            socket.socket(fileno=fds["admin"]),
            str(boot.addresses["admin_grpc"]),
            self._config.limits,
        )
        overview = self._overview
        administration = Administrator(
            self._models,
            TableAdministration(self._stores, overview.states, self._counted),
            overview.workers,
            overview.check_ready,
            self._pool.set_log,
            Tracer(self._pool).record,
            self._config.shown,
            self._config.logs,
        )
        scrapes = Scrapes(self._sources())
        await self._doors.open(overview, scrapes.render, administration, self._version)

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        """Do work without which this process is of no use: the launcher starts another one."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except AnabranchError as error:
            _log.error("%s", error.message, extra={"event": "cannot_supervise"})
        except BaseException:
            _log.exception("supervising failed", extra={"event": "internal_error"})
        else:
            return
        self._exit_code = 1
        self._stopping.set()

    # --- stopping -------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin to stop: ready is off when this returns.

        Where the launcher does not say so too, this process ends alone and is started again.
        """
        if self._overview.is_draining:
            return
        self._overview.is_draining = True
        self._pool.drain()
        self._stopping.set()
        drain_s = self._config.drain_s
        _log.info("draining", extra={"event": "draining", "drain_s": drain_s})

    async def _wait_for_workers(self) -> None:
        """Wait until the last worker is gone, if the whole server is to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ORDER_S):
                await self._ordered.wait()
        if self._ordered.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.drain_s + _LINGER_S):
                    await self._pool.wait_empty()

    # --- launcher -------------------------------------------------------------------------------

    def _on_launcher(self, message: FromLauncher, fds: list[int]) -> None:
        match message:
            case Attached():
                self._pool.attach(message, *fds)
            case LoaderAttached(pid, purpose):
                self._loaders.attach(purpose, pid, *fds)
            case Drain():
                self._stop_all()
            case _:  # meant for a worker
                for fd in fds:
                    os.close(fd)

    def _on_launcher_gone(self) -> None:
        if not self._overview.is_draining:
            _log.warning("the launcher is gone", extra={"event": "launcher_lost"})
        self._stop_all()

    def _stop_all(self) -> None:
        """Stop because the whole server does."""
        self._announcement.withdraw()
        self._ordered.set()
        self.stop()

    def _start_loader(self, purpose: Purpose, gives_way: bool) -> None:
        with suppress(ChannelClosed):  # the launcher's end is noticed elsewhere
            self._launcher.send(StartLoader(purpose, gives_way))

    # --- models ---------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Take over what is served, look at the repository, and keep what is there."""
        await self._transactions.begin(self._pool)
        if not self._transactions.found_answering:
            self._overview.has_been_ready = (
                False  # all who answered are gone: a start like the first
            )
        if self._overview.has_been_ready:  # under an earlier supervisor
            self._transactions.serve(has_been_ready=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._after_first_look())

    async def _watch(self) -> None:
        """Look at the repository now and then, and whenever its source has news."""
        await self._source.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeping.run(self._watcher))
            group.create_task(self._source.run())

    async def _look(self) -> Look:
        """Look at the repository as it is now, wherever it is."""
        await self._source.refresh()
        return await self._watcher.look()

    async def _after_first_look(self) -> None:
        await self._keeping.first_look_done.wait()
        if reason := self._overview.obstacle():
            _log.error("not ready: %s", reason, extra={"event": "not_ready"})
        self._transactions.serve(has_been_ready=self._overview.has_been_ready)
        self._announce()

    async def _upkeep(self) -> None:
        """Keep up to date what others read in the run folder."""
        while True:
            await asyncio.sleep(_UPKEEP_S)
            self._totals.save_if_changed()
            self._announce()

    def _announce(self) -> None:
        """Say that the server is ready, or which processes it is made of now."""
        if self._overview.obstacle() is None:
            self._transactions.serve(has_been_ready=True)
            pids = self._overview.serving_pids()
            self._announcement.make(pids, self._loaders.pids, self._models.snapshots())

    def _published(self, change: Change) -> None:
        state = change.state
        versions = None if state is None else [one.version for one in state.versions]
        self._vanishing.loaded(change.model, versions, self._loop.time())

    # --- what the parts are given ---------------------------------------------------------------

    def _surroundings(self) -> Surroundings:
        workers = self._config.workers
        return Surroundings(
            switching=self._transactions,
            loader=self._loaders,
            records=Records(self._config.folders.state),
            counts=self._counts,
            launch=self._boot.launch,
            workers=workers,
            cores=usable_cores() // workers or 1,
            available_bytes=available_bytes,
            is_serving=lambda: self._overview.is_serving,
            gap_grace_s=self._config.switch.gap_grace_s,
        )

    def _new_watcher(self) -> Watcher:
        repository = self._config.repository
        scanner = Scanner(repository.path, repository.models, repository.settle_s)
        return Watcher(scanner, self._config.watch.poll_s, self._keeping.take, time.time)

    def _new_source(self) -> Source:
        config = self._config
        return new_source(config.repository, config.watch, self._watcher.poke, self._remote)

    def _counted(self) -> Iterator[Series]:
        """Yield what workers have counted, those that died included."""
        for worker in self._pool:
            yield from worker.read_counters()
        yield from self._totals.all_series()

    def _sources(self) -> Sources:
        return Sources(
            pool=self._pool,
            totals=self._totals,
            vanishing=self._vanishing,
            workers=self._overview.workers,
            models=self._models.models,
            states=self._overview.states,
            stores=self._stores,
            leases=self._transactions.leases,
            pids=lambda: {
                "launcher": self._boot.launcher_pid,
                "supervisor": os.getpid(),
                "loader": self._loaders.pids["versions"],
                "delta_loader": self._loaders.pids["deltas"],
            },
            version=self._version,
            remote=self._remote,
        )
