"""Everything around the data plane: loading models, admin and metrics ports, readiness, stopping.

A supervisor owns the repository and tells a `Worker` what to serve. In this release both live in
one process and on one event loop.
"""

import asyncio
import gc
import logging
import os
import threading
from pathlib import Path
from typing import Final

from anabranch_server.app import create_admin_app, create_metrics_app
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.config import ServeConfig
from anabranch_server.lifecycle import Phase
from anabranch_server.loading import Loader
from anabranch_server.ports import Claims
from anabranch_server.ready import Ready, remove_ready, seconds_since_start, write_ready
from anabranch_server.supervisor.single_administration import SingleAdministration
from anabranch_server.supervisor.single_exposition import SingleExposition
from anabranch_server.worker import Worker
from anabranch_wire.errors import Unavailable

__all__ = ["Supervisor"]

_log = logging.getLogger(__name__)

_CLOSE_S: Final = 2
_ABANDON_S: Final = 5.0


class Supervisor:
    """Runs a server from open ports to closed ones. Belongs to the event loop.

    Args:
        config: what was asked for.
        claims: where to listen.
        worker: what answers requests.
        loader: what finds and loads models.
        run_dir: for the ready file.
    """

    def __init__(
        self, config: ServeConfig, claims: Claims, worker: Worker, loader: Loader, run_dir: Path
    ) -> None:
        self._config = config
        self._claims = claims
        self._worker = worker
        self._loader = loader
        self._ready_files = [run_dir / "ready.json"]
        if config.ready_file is not None:
            self._ready_files.append(config.ready_file)
        context = worker.context
        exposition = SingleExposition(worker, context.server_version)
        administration = SingleAdministration(config.shown, worker, loader)
        self._metrics = AsgiServer(
            create_metrics_app(worker.lifecycle, exposition.render), claims.metrics, config.limits
        )
        self._admin = AsgiServer(
            create_admin_app(administration, context.server_version), claims.admin, config.limits
        )
        self._stopping = asyncio.Event()
        self._loading = threading.Thread(target=self._load, name="loader", daemon=True)
        self._loaded = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Begin to stop: ready is off when this returns. Loop thread."""
        self._worker.lifecycle.advance(Phase.DRAINING)
        self._loader.stop()
        self._stopping.set()

    async def run(self) -> bool:
        """Serve until `stop` was called and everything is closed.

        Returns:
            Whether nothing is left running; else threads are still inside native code, and the
            process should end without waiting for them.

        Raises:
            Unavailable: a port cannot be listened on, or a ready file cannot be written.
        """
        for file in self._ready_files:
            remove_ready(file)
        try:
            await self._metrics.start()
            await self._admin.start()
            await self._worker.open(self._claims.http, self._claims.grpc, self._config.grpc)
            _log.info(
                "listening: HTTP on %s, gRPC on %s",
                self._claims.http,
                self._claims.grpc,
                extra={"event": "listening", **self._addresses()},
            )
            self._loading.start()
            await self._first_of(self._loaded, self._stopping)
            if not self._stopping.is_set():
                self._announce()
                await self._stopping.wait()
        finally:
            clean = await self._close()
        return clean

    # --- start ----------------------------------------------------------------------------------

    def _load(self) -> None:
        """Body of the loader thread."""
        try:
            self._loader.run()
        except Exception:  # the edge of the thread: what was loaded so far serves
            _log.exception("loading ended early", extra={"event": "internal_error"})
        finally:
            self._loop.call_soon_threadsafe(self._loaded.set)

    async def _first_of(self, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _announce(self) -> None:
        """Say that the server answers, or why it does not."""
        self._worker.lifecycle.advance(Phase.SERVING)
        # What was made so far stays: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        try:
            self._worker.lifecycle.check_ready()
        except Unavailable as reason:
            _log.error("not ready: %s", reason.message, extra={"event": "not_ready"})
            return
        ready = self._ready()
        for file in self._ready_files:
            write_ready(file, ready)
        _log.info(
            "ready: HTTP on %s, gRPC on %s",
            ready.http,
            ready.grpc,
            extra={
                "event": "ready",
                **self._addresses(),
                "models": ready.models,
                "seconds": ready.seconds,
            },
        )

    def _addresses(self) -> dict[str, str]:
        claims = self._claims
        return {
            "http": str(claims.http),
            "grpc": str(claims.grpc),
            "metrics": str(claims.metrics),
            "admin": str(claims.admin),
        }

    def _ready(self) -> Ready:
        pid = os.getpid()
        return Ready(
            pid=pid,
            supervisor=pid,
            loader=None,
            **self._addresses(),
            admin_grpc=None,
            workers=(pid,),
            models=self._worker.snapshots(),
            seconds=round(seconds_since_start(), 3),
        )

    # --- stop -----------------------------------------------------------------------------------

    async def _close(self) -> bool:
        for file in self._ready_files:
            remove_ready(file)
        _log.info("draining", extra={"event": "draining", "drain_s": self._config.drain_s})
        await self._worker.drain(self._config.drain_s)
        clean = await self._end_loading()
        await self._worker.close(free=clean)
        await asyncio.gather(self._metrics.stop(_CLOSE_S), self._admin.stop(_CLOSE_S))
        self._claims.close()
        _log.info("stopped", extra={"event": "stopped"})
        return clean

    async def _end_loading(self) -> bool:
        """Wait for the loader to stop; whether it did."""
        self._loader.stop()
        if self._loading.is_alive():
            await asyncio.to_thread(self._loading.join, _ABANDON_S)
        return not self._loading.is_alive()
