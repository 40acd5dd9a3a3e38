"""The data plane of one process: doors, catalog, session groups and counters.

A worker knows nothing of repositories, admin or metrics ports; it is given versions to serve. All
of it may therefore run in a process of its own.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from anabranch_runtime.backends import load_backend
from anabranch_runtime.catalog import Catalog, ServingState
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings
from anabranch_server.access_log import AccessLog
from anabranch_server.app import create_app
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.config import GrpcConfig
from anabranch_server.doors import DoorContext
from anabranch_server.http import hot_protocol
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.limits import Limits
from anabranch_server.metrics import ModelCounters, RequestCounters, create_page
from anabranch_server.open_connections import open_connections
from anabranch_server.ports import Claim
from anabranch_server.rpc import GrpcDoor
from anabranch_wire.errors import Unavailable

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

_GRPC_THREADS: Final = 16
_QUIET_S: Final = 0.5
_POLL_S: Final = 0.05
_CLOSE_S: Final = 5


class _Epochs:
    """Epochs of a process that switches by itself."""

    def __init__(self) -> None:
        self.words: dict[int, int] = {}

    def load(self, index: int, /) -> int:
        return self.words.get(index, 0)


class Worker:
    """Answers requests from `open` to `close`.

    `group`, `publish` and `close_groups` belong to whoever loads models (one thread at a time); the
    rest belongs to the event loop.

    Attributes:
        index: number among the workers.
        catalog: what is served.
        lifecycle: where the process stands; advanced by its owner.
        context: what doors are given.
        page: counters, for whoever shows them.
        started: seconds since 1970.
    """

    def __init__(
        self, index: int, limits: Limits, *, access_log: bool, allow_empty: bool, version: str
    ) -> None:
        self.index = index
        self.started = time.time()
        self._epochs = _Epochs()
        self.catalog = Catalog(self._epochs)
        self.lifecycle = Lifecycle(self.catalog, allow_empty=allow_empty)
        self.page = create_page()
        counters = RequestCounters(self.page, self.catalog)
        self.context = DoorContext(
            self.catalog,
            limits,
            self.lifecycle,
            AccessLog(counters) if access_log else counters,
            version,
        )
        self._groups: dict[str, SessionGroup] = {}
        self._slots: dict[str, int] = {}
        self._http: AsgiServer | None = None
        self._grpc: GrpcDoor | None = None
        self._grpc_port = 0

    # --- doors ----------------------------------------------------------------------------------

    async def open(self, http: Claim, grpc: Claim, told: GrpcConfig) -> None:
        """Listen; requests for models that are not loaded are refused until they are.

        Raises:
            Unavailable: a port cannot be listened on.
        """
        context = self.context
        self._http = AsgiServer(create_app(context), http, context.limits, hot_protocol(context))
        try:
            self._grpc = GrpcDoor(
                context,
                str(grpc),
                threads=_GRPC_THREADS,
                max_connection_age_s=told.max_connection_age_s,
            )
        except RuntimeError as error:
            raise Unavailable(f"gRPC: {grpc}: {error}") from None
        self._grpc_port = grpc.port
        await self._http.start()
        self._grpc.start()

    async def drain(self, drain_s: float) -> None:
        """Turn ready off at once, but keep answering for `drain_s` or until nobody is connected.

        A connection that comes and goes counts: whoever connects anew for each request is served
        until half a second passes without one.
        """
        self.lifecycle.advance(Phase.DRAINING)
        now_s = time.monotonic()
        end_s, quiet_since_s = now_s + drain_s, now_s
        while (now_s := time.monotonic()) < end_s and now_s - quiet_since_s < _QUIET_S:
            if self._is_connected():
                quiet_since_s = now_s
            await asyncio.sleep(_POLL_S)

    async def close(self, *, free: bool) -> None:
        """Finish what was begun, close every connection and port.

        Args:
            free: whether to free the models too; not while some are still being loaded.
        """
        doors = []
        if self._http is not None:
            doors.append(self._http.stop(_CLOSE_S))
        if self._grpc is not None:
            doors.append(asyncio.to_thread(self._grpc.drain, _CLOSE_S))
        await asyncio.gather(*doors)
        if free:
            await asyncio.to_thread(self.close_groups)

    def _is_connected(self) -> bool:
        """Whether anybody is connected; where the kernel does not tell, gRPC counts as it were."""
        if self._http is not None and self._http.connections:
            return True
        return self._grpc is not None and open_connections(self._grpc_port) != 0

    # --- models ---------------------------------------------------------------------------------

    def group(self, model: str, settings: GroupSettings, backend: str) -> SessionGroup:
        """Return the session group of a model, made on first use.

        Raises:
            Unsupported: there is no such backend yet.
            Unavailable: its library is missing.
        """
        group = self._groups.get(model)
        if group is None:
            counters = ModelCounters(self.page, model, self.index)
            # Users repeated for all rows may amount to what a body may that brings them all.
            limit = self.context.limits.max_decompressed_bytes
            settings = replace(settings, max_repeated_bytes=limit)
            group = SessionGroup(model, settings, load_backend(backend), counters)
            self._groups[model] = group
        return group

    def publish(self, model: str, state: ServingState) -> None:
        """Let new requests see `state`."""
        slot = self._slots.setdefault(model, len(self._slots))
        epoch = self._epochs.words.get(slot, 0) + 1
        self.catalog.hold(model, slot, epoch, state)
        self._epochs.words[slot] = epoch
        self.catalog.sweep(model)

    def close_groups(self) -> None:
        """Free every model; what still waits for an executor is answered with an error."""
        for model, group in self._groups.items():
            if not group.close():
                _log.warning(
                    "model %s is still computing and was abandoned",
                    model,
                    extra={"event": "group_abandoned", "model": model},
                )
        self._groups.clear()

    def snapshots(self) -> Mapping[str, str]:
        """Return model name -> snapshot that answers by default, such as `42+17`."""
        return {
            model: str(state.versions[state.default].snapshot)
            for model, state in self.catalog.states.items()
            if state.default is not None
        }
