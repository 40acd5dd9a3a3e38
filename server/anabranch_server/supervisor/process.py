"""A supervisor process: from its boot document to its end.

It never answers a scoring request, and nothing that it does stops one: workers serve on while it
is replaced. A new one takes over what they serve.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from anabranch_model_store.memory import available_bytes
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.app import create_admin_app, create_metrics_app
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.cores import usable_cores
from anabranch_server.describe import WorkerView
from anabranch_server.describe.workers import WorkerState
from anabranch_server.metrics.totals import Totals
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.channel import Channel, ChannelClosed
from anabranch_server.processes.messages import (
    Attached,
    Drain,
    FromLauncher,
    LoaderAttached,
    StartLoader,
)
from anabranch_server.processes.plans import StatePlan
from anabranch_server.rpc.admin_door import AdminGrpcDoor
from anabranch_server.supervisor.administrator import Administrator
from anabranch_server.supervisor.agreement import Change, WorkerId
from anabranch_server.supervisor.announcement import Announcement
from anabranch_server.supervisor.holds import Records
from anabranch_server.supervisor.keeper_counts import ReloadCounts
from anabranch_server.supervisor.keeper_state import Surroundings
from anabranch_server.supervisor.keeping import Keeping
from anabranch_server.supervisor.loader_link import LoaderLink
from anabranch_server.supervisor.models import ModelAdministration
from anabranch_server.supervisor.readiness import Standing, obstacle
from anabranch_server.supervisor.scrapes import Scrapes, Sources, reload_series
from anabranch_server.supervisor.transactions import Transactions
from anabranch_server.supervisor.vanishing import Vanishing
from anabranch_server.supervisor.watching import Scanner, Watcher
from anabranch_server.supervisor.workers import Pool
from anabranch_wire.errors import Unavailable

__all__ = ["SupervisorProcess"]

_log = logging.getLogger(__name__)

_CLOSE_S: Final = 2
_UPKEEP_S: Final = 1.0
_LINGER_S: Final = 10.0
"""What workers get beyond `drain_s`, before they are left to themselves."""
_DRAIN_ORDER_S: Final = 5.0
"""How long after a signal the launcher's order may come, if the whole server is to stop."""


class SupervisorProcess:
    """Looks after a server from `run` to its end. Belongs to the event loop that runs when made.

    Args:
        boot: what this process was told; its descriptors belong to this object.
    """

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._loop = asyncio.get_running_loop()
        config, fds = boot.config, boot.descriptors
        self._version = version("anabranch")
        self._words = SharedWords.open(fds["epochs"], writable=True)
        os.close(fds["epochs"])
        os.close(fds["balance"])  # workers look after the balance themselves
        self._launcher: Channel[FromLauncher] = Channel(
            socket.socket(fileno=fds["launcher"]), FromLauncher
        )
        self._announcement = Announcement(boot, os.getpid())
        self._has_been_ready = self._announcement.was_made
        self._is_draining = False
        self._stopping = asyncio.Event()
        self._ordered = asyncio.Event()
        self._counts = ReloadCounts()
        self._vanishing = Vanishing()
        self._totals = Totals(
            Path(boot.run_dir) / "totals",
            boot.launch,
            lambda: reload_series(self._counts),
        )
        self._transactions = Transactions(
            self._words,
            prepare_timeout_s=config.switch.prepare_timeout_s,
            stall_s=config.switch.stall_s,
            incarnation=boot.incarnation,
            expected_workers=config.workers,
            on_published=self._published,
        )
        self._pool = Pool(self._transactions, self._totals, config.switch.stall_s)
        self._loader = LoaderLink(self._start_loader)
        self._keeping = Keeping(
            self._surroundings(), config.repository.models, config.repository.settle_s
        )
        self._watcher = self._new_watcher()
        self._models = ModelAdministration(self._keeping, self._watcher.look)
        self._administration = Administrator(
            self._models,
            self.workers,
            self.check_ready,
            self._pool.set_log,
            config.shown,
            config.logs,
        )
        self._metrics = AsgiServer(
            create_metrics_app(self, Scrapes(self._sources()).render),
            socket.socket(fileno=fds["metrics"]),
            config.limits,
        )
        self._admin = AsgiServer(
            create_admin_app(self._administration, self._version),
            socket.socket(fileno=fds["admin"]),
            config.limits,
        )
        self._admin_grpc: AdminGrpcDoor | None = None

    async def run(self) -> None:
        """Look after the server until it is to stop and the last worker is gone.

        Raises:
            Unavailable: a port cannot be listened on.
        """
        await self._metrics.start()
        await self._admin.start()
        await self._open_grpc()
        self._launcher.attach(self._loop, self._on_launcher, self._on_launcher_gone)
        tasks = [
            asyncio.create_task(self._keep(), name="keeping"),
            asyncio.create_task(self._upkeep(), name="upkeep"),
        ]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loader.close()
        await self._wait_for_workers()
        await self._close()
        _log.info("stopped", extra={"event": "stopped"})

    # --- stopping -------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin to stop: ready is off when this returns."""
        if self._is_draining:
            return
        self._is_draining = True
        self._announcement.withdraw()
        self._pool.drain()
        self._stopping.set()
        drain_s = self._boot.config.drain_s
        _log.info("draining", extra={"event": "draining", "drain_s": drain_s})

    def leave(self) -> None:
        """Stop because of a signal: with the server where it stops too, else at once."""
        self.stop()

    async def _wait_for_workers(self) -> None:
        """Wait until the last worker is gone, or this process alone was to leave."""
        try:
            async with asyncio.timeout(_DRAIN_ORDER_S):
                await self._ordered.wait()
        except TimeoutError:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._boot.config.drain_s + _LINGER_S):
                await self._pool.wait_empty()

    async def _close(self) -> None:
        self._transactions.close()
        self._pool.close()
        self._launcher.close()
        closing = [self._metrics.stop(_CLOSE_S), self._admin.stop(_CLOSE_S)]
        if self._admin_grpc is not None:
            closing.append(asyncio.to_thread(self._admin_grpc.drain, _CLOSE_S))
        await asyncio.gather(*closing)

    # --- launcher -------------------------------------------------------------------------------

    def _on_launcher(self, message: FromLauncher, fds: list[int]) -> None:
        match message:
            case Attached():
                self._pool.attach(message, *fds)
            case LoaderAttached(pid):
                self._loader.attach(pid, *fds)
            case Drain():
                self._ordered.set()
                self.stop()
            case _:  # meant for a worker
                for fd in fds:
                    os.close(fd)

    def _on_launcher_gone(self) -> None:
        if not self._is_draining:
            _log.warning("the launcher is gone", extra={"event": "launcher_lost"})
        self._ordered.set()
        self.stop()

    def _start_loader(self) -> None:
        with suppress(ChannelClosed):  # the launcher's end is noticed elsewhere
            self._launcher.send(StartLoader())

    # --- models ---------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Take over, look, keep; ends the process where that cannot go on."""
        try:
            await self._transactions.begin(self._pool)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keeping.run(self._watcher))
                group.create_task(self._after_first_look())
        except asyncio.CancelledError:
            raise
        except BaseException:
            _log.exception("keeping models failed", extra={"event": "internal_error"})
            self._ordered.clear()
            self._stopping.set()  # the launcher starts another one

    async def _after_first_look(self) -> None:
        await self._keeping.first_look_done.wait()
        self._transactions.serve()
        if reason := self._obstacle():
            _log.error("not ready: %s", reason, extra={"event": "not_ready"})
        self._announce()

    async def _upkeep(self) -> None:
        """Keep files up to date that others read."""
        while True:
            await asyncio.sleep(_UPKEEP_S)
            self._totals.save_if_changed()
            self._announce()

    def _published(self, change: Change) -> None:
        versions = () if change.state is None else [one.version for one in change.state.versions]
        self._vanishing.loaded(change.model, versions, self._loop.time())

    def _surroundings(self) -> Surroundings:
        boot = self._boot
        workers = boot.config.workers
        return Surroundings(
            switching=self._transactions,
            loader=self._loader,
            records=Records(boot.config.folders.state),
            counts=self._counts,
            launch=boot.launch,
            workers=workers,
            cores=usable_cores() // workers or 1,
            available_bytes=available_bytes,
            is_serving=lambda: self._has_been_ready or self._keeping.first_look_done.is_set(),
        )

    def _new_watcher(self) -> Watcher:
        config = self._boot.config
        repository = config.repository
        scanner = Scanner(repository.path, repository.models, repository.settle_s)
        return Watcher(scanner, config.watch.poll_s, self._keeping.take, time.time)

    # --- readiness ------------------------------------------------------------------------------

    def check_ready(self) -> None:
        """Return when the server is ready.

        Raises:
            Unavailable: it is not; says why.
        """
        reason = self._obstacle()
        if reason is not None:
            raise Unavailable(reason)

    def _obstacle(self) -> str | None:
        reason = obstacle(
            Standing(
                is_draining=self._is_draining,
                has_been_ready=self._has_been_ready,
                has_looked=self._keeping.first_look_done.is_set(),
                serving_workers=len(self._transactions.joined()),
                states=self._states(),
                allow_empty=self._boot.config.allow_empty,
            )
        )
        if reason is None:
            self._has_been_ready = True
        return reason

    def _announce(self) -> None:
        """Say that the server is ready, or which processes it is made of now."""
        if self._obstacle() is None:
            joined = self._transactions.joined()
            pids = [worker.pid for worker in self._pool if worker.id in joined]
            self._announcement.make(pids, self._loader.pid, self._models.snapshots())

    # --- what is shown --------------------------------------------------------------------------

    def workers(self) -> Sequence[WorkerView]:
        """Return every worker process, by index."""
        joined = self._transactions.joined()
        return [
            WorkerView(
                index=worker.id.index,
                pid=worker.pid,
                state=self._worker_state(worker.id, joined),
                started=worker.started,
                restarts=worker.id.incarnation - 1,
                snapshots=_snapshots(self._transactions.served_by(worker.id)),
            )
            for worker in self._pool
        ]

    def _worker_state(self, worker: WorkerId, joined: set[WorkerId]) -> WorkerState:
        if self._is_draining:
            return "draining"
        return "serving" if worker in joined else "starting"

    def _states(self) -> dict[str, StatePlan]:
        return {
            model: change.state
            for model, change in self._transactions.current.items()
            if change.state is not None
        }

    def _sources(self) -> Sources:
        return Sources(
            pool=self._pool,
            totals=self._totals,
            vanishing=self._vanishing,
            workers=self.workers,
            models=self._models.models,
            states=self._states,
            pids=lambda: {
                "launcher": self._boot.launcher_pid,
                "supervisor": os.getpid(),
                "loader": self._loader.pid,
            },
            version=self._version,
        )

    async def _open_grpc(self) -> None:
        address = str(self._boot.addresses["admin_grpc"])
        door = await asyncio.to_thread(
            AdminGrpcDoor, self._administration, self._loop, address, self._version
        )
        door.start()
        self._admin_grpc = door


def _snapshots(states: dict[str, StatePlan]) -> dict[str, str]:
    """Return model name -> snapshot that answers by default, such as `42+17`."""
    return {
        model: f"{plan.version}+{plan.delta}" if plan.delta else str(plan.version)
        for model, state in states.items()
        for plan in state.versions
        if plan.version == state.default
    }
