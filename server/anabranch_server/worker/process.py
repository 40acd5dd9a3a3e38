"""A worker process: from its boot document to its exit code.

The data plane stays up while the supervisor is replaced; it ends when the launcher says so, or is
gone, or a signal comes.
"""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast, get_args

from anabranch_runtime.backends import load_backend
from anabranch_runtime.catalog import Catalog
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.access_log import AccessLog
from anabranch_server.config import LogLevel
from anabranch_server.doors import DoorContext
from anabranch_server.feature_log import FeatureLog
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.logs import set_log_level
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.channel import Channel, ChannelClosed
from anabranch_server.processes.messages import (
    Abort,
    Drain,
    FromLauncher,
    FromSupervisor,
    FromWorker,
    Hello,
    Joined,
    NewSupervisor,
    Opened,
    Ping,
    Pong,
    Prepare,
    Refreshed,
    Serving,
    SetLog,
    Stats,
    Trace,
    Traced,
)
from anabranch_server.processes.packets import close_all
from anabranch_server.worker.builds import Builds
from anabranch_server.worker.counting import Counting
from anabranch_server.worker.stock import Stock, WorkerPlace
from anabranch_wire.errors import AnabranchError

if TYPE_CHECKING:
    from anabranch_server.worker.doors import Doors

__all__ = ["WorkerProcess"]

_log = logging.getLogger(__name__)

_USUAL_BACKEND: Final = "ort-cpu"
_LOG_CLOSE_S: Final = 5.0
_IDLE_SHARE: Final = 0.5
"""Part of the time for preparing that a build may spend at idle priority."""


class WorkerProcess:
    """Serves from `run` to its end. Belongs to the event loop that runs when it is made.

    Args:
        boot: what this process was told; its descriptors belong to this object.
    """

    def __init__(self, boot: Boot) -> None:
        self._boot = boot
        self._config = boot.config
        self._loop = asyncio.get_running_loop()
        fds = boot.descriptors
        words = SharedWords.open(fds["epochs"], writable=False)
        os.close(fds["epochs"])
        self._catalog = catalog = Catalog(words, is_complete=False)
        self._lifecycle = Lifecycle(catalog, allow_empty=boot.config.allow_empty)
        self._counting = Counting(boot.index, catalog)
        self._access_log = AccessLog(
            self._counting.requests, is_on=boot.config.logs.access, spans=self._counting.spans
        )
        self._tracing: asyncio.TimerHandle | None = None
        self._feature_log = self._open_feature_log()
        self._context = DoorContext(
            catalog,
            boot.config.limits,
            self._lifecycle,
            self._access_log,
            version("anabranch"),
            explain_sample=boot.config.explain_log.sample,
            feature_log=self._feature_log,
        )
        patience_s = boot.config.switch.prepare_timeout_s * _IDLE_SHARE
        # Users repeated for all rows may amount to what a body may that brings them all.
        most_repeated = boot.config.limits.max_decompressed_bytes
        self._stock = Stock(
            WorkerPlace(boot.index, boot.incarnation, most_repeated, boot.config.store.residency),
            catalog,
            self._counting,
            Builds(patience_s),
            self._say,
        )
        self._doors: Doors | None = None
        self._opening: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._launcher: Channel[FromLauncher] = Channel(
            socket.socket(fileno=fds["launcher"]), FromLauncher
        )
        self._supervisor: Channel[FromSupervisor] | None = None
        self._making_doors = asyncio.ensure_future(asyncio.to_thread(self._make_doors))
        self._launcher.attach(self._loop, self._on_launcher, self._on_launcher_gone)
        self._take_supervisor(fds["supervisor"])

    async def run(self) -> tuple[int, bool]:
        """Serve until told to stop, then drain and close.

        Returns:
            The exit code, and whether nothing is left running; else threads are still inside native
            code, and the process should end without waiting for them.
        """
        await self._stopping.wait()
        self._lifecycle.advance(Phase.DRAINING)
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self._doors is not None and self._is_open:
            _log.info("draining", extra={"event": "draining", "drain_s": self._config.drain_s})
            await self._doors.drain(self._config.drain_s)
            await self._doors.close()
        self._making_doors.cancel()
        clean = self._stock.close() and not self._exit_code
        if self._feature_log is not None:
            clean &= await asyncio.to_thread(self._feature_log.close, _LOG_CLOSE_S)
        for channel in (self._launcher, self._supervisor):
            if channel is not None:
                channel.close()
        _log.info("stopped", extra={"event": "stopped"})
        return self._exit_code, clean

    def stop(self) -> None:
        """Begin to stop: ready is off when this returns."""
        self._lifecycle.advance(Phase.DRAINING)
        self._stopping.set()

    def _open_feature_log(self) -> FeatureLog | None:
        config = self._config.feature_log
        if not config.sample or config.dir is None:
            return None
        return FeatureLog(config.dir, config.sample, self._boot.index, self._counting.requests)

    # --- launcher -------------------------------------------------------------------------------

    def _on_launcher(self, message: FromLauncher, fds: list[int]) -> None:
        match message:
            case NewSupervisor():
                self._take_supervisor(*fds)
            case Drain():
                self.stop()
            case _:  # meant for a supervisor
                close_all(fds)

    def _on_launcher_gone(self) -> None:
        if not self._stopping.is_set():
            _log.warning("the launcher is gone", extra={"event": "launcher_lost"})
        self.stop()

    # --- supervisor -----------------------------------------------------------------------------

    def _take_supervisor(self, fd: int) -> None:
        """Introduce this worker to a supervisor."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
            self._stock.abandon()
            self._end_trace()
        models = self._stock.held()
        channel: Channel[FromSupervisor] = Channel(socket.socket(fileno=fd), FromSupervisor)
        boot = self._boot
        hello = Hello(boot.index, boot.incarnation, os.getpid(), self._is_open, models)
        self._supervisor = channel
        channel.attach(self._loop, self._on_supervisor, self._on_supervisor_gone)
        self._say(hello, [self._counting.page.fd])

    def _on_supervisor(self, message: FromSupervisor, fds: list[int]) -> None:
        match message:
            case Prepare():
                self._stock.prepare(message, fds)
            case Abort():
                self._stock.abort(message.model, message.epoch)
            case Ping():
                self._say(Pong(message.number))
            case Stats():
                self._stock.refresh()
                self._say(Refreshed(message.number))
            case Trace():
                self._trace(message)
            case Joined():
                if self._opening is None:
                    self._opening = asyncio.ensure_future(self._open())
            case Serving(has_been_ready):
                if self._lifecycle.phase is Phase.STARTING:
                    _keep_from_collector()
                self._catalog.complete()
                self._lifecycle.advance(Phase.SERVING)
                if has_been_ready:
                    self._lifecycle.stay_ready()
            case SetLog():
                self._set_log(message)
            case _:  # meant for a launcher or a loader
                close_all(fds)

    def _on_supervisor_gone(self) -> None:
        self._supervisor = None
        self._stock.abandon()
        self._end_trace()
        if not self._stopping.is_set():
            _log.warning(
                "the supervisor is gone; what is loaded is served on",
                extra={"event": "supervisor_lost"},
            )

    def _say(self, message: FromWorker, fds: Sequence[int] = ()) -> None:
        """Send to the supervisor, if there is one."""
        if self._supervisor is not None:
            # The loop learns of it, and another supervisor is told all that matters.
            with suppress(ChannelClosed):
                self._supervisor.send(message, fds)

    def _trace(self, told: Trace) -> None:
        """Write down what takes how long, and send it when the time is over."""
        self._end_trace()
        self._counting.spans.begin()
        self._tracing = self._loop.call_later(told.seconds, self._traced, told.number)

    def _traced(self, number: int) -> None:
        self._say(Traced(number, self._counting.spans.end()))
        self._tracing = None

    def _end_trace(self) -> None:
        """Write nothing down any more: nobody waits for it."""
        if self._tracing is not None:
            self._tracing.cancel()
            self._tracing = None
            self._counting.spans.end()

    def _set_log(self, told: SetLog) -> None:
        if told.level in get_args(LogLevel):
            set_log_level(cast(LogLevel, told.level))
        if told.access is not None:
            self._access_log.is_on = told.access

    # --- doors ----------------------------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        opening = self._opening
        return opening is not None and opening.done() and self._doors is not None

    def _make_doors(self) -> "Doors":
        """Import what takes long; on a thread beside the loop."""
        from anabranch_server.worker.doors import Doors

        load_backend(_USUAL_BACKEND)
        return Doors(self._context, self._boot, self._stock.in_flight)

    async def _open(self) -> None:
        try:
            doors = await self._making_doors
            await doors.open()
        except AnabranchError as error:
            _log.error("%s", error.message, extra={"event": "cannot_open"})
            self._exit_code = 1
            self.stop()
            return
        except Exception:  # the edge of opening: whoever stays closed must not look alive
            _log.exception("the doors do not open", extra={"event": "internal_error"})
            self._exit_code = 1
            self.stop()
            return
        self._doors = doors
        http, grpc = self._boot.addresses["http"], self._boot.addresses["grpc"]
        _log.info(
            "listening: HTTP on port %d, gRPC on port %d",
            http.port,
            grpc.port,
            extra={"event": "listening"},
        )
        self._say(Opened())


def _keep_from_collector() -> None:
    """Let the collector pass by what was made so far: it stays."""
    gc.collect()
    gc.freeze()
