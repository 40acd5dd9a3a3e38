"""The loader from its start to its end: one request after the other, over one channel."""

import logging
import select
import socket
from typing import TYPE_CHECKING, Final

from anabranch_server.config import ServeConfig
from anabranch_server.loader.standing import Standing, be_first_to_go
from anabranch_server.logs import configure_logs
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.channel import Channel, ChannelClosed
from anabranch_server.processes.loader_messages import ApplyDeltas, LoadVersion, Progress
from anabranch_server.processes.messages import FromSupervisor, SetLog

if TYPE_CHECKING:
    from anabranch_server.loader.applying import DeltaDesk

__all__ = ["run_loader"]

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 30.0
"""How long a loader without work stays; its memory is worth more than its start takes."""
_FLUSH_S: Final = 60.0


def run_loader(boot: Boot, patience_s: float = _PATIENCE_S) -> None:
    """Serve requests until none has come for `patience_s`, or the supervisor has gone."""
    configure_logs(boot.config.logs, "loader")
    be_first_to_go()
    sock = socket.socket(fileno=boot.descriptors["supervisor"])
    channel: Channel[FromSupervisor] = Channel(sock, FromSupervisor)
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    standing = Standing()
    deltas = _Deltas(boot.config)
    try:
        while waiting.poll(patience_s * 1e3):
            received = channel.receive()
            if received is None:
                break
            match received.message:
                case LoadVersion() as request:
                    standing.fall_to(request.priority)
                    _answer(channel, request, boot.config)
                case ApplyDeltas() as request:
                    standing.fall_to(request.priority)
                    deltas.answer(channel, request)
                case SetLog(level=str() as level):
                    logging.getLogger().setLevel(level.upper())
                case other:
                    _log.error("unexpected %s", type(other).__name__, extra={"event": "bad_packet"})
    except ChannelClosed:
        pass  # the supervisor has gone: whatever it asked for is asked again by its successor
    finally:
        deltas.close()
        channel.close()


def _answer(channel: Channel[FromSupervisor], request: LoadVersion, config: ServeConfig) -> None:
    # What is said before the imports tells the supervisor that the request has arrived.
    channel.send(Progress(request.number, "fetching"))
    # Takes most of a second; at idle priority, where that is asked for.
    from anabranch_server.loader.building import GraphBuilder
    from anabranch_server.loader.examination import examine
    from anabranch_server.loader.origin import open_origin
    from anabranch_server.loader.row_cache import RowCache

    cache = config.folders.cache
    rows = RowCache(cache, config.store.reserve)
    origin = open_origin(config.repository, cache, request.in_use, request.since)
    channel.send(examine(request, channel.send, GraphBuilder(cache), rows, origin))
    channel.flush(_FLUSH_S)


class _Deltas:
    """Answers requests about deltas; what it takes is imported with the first one."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._desk: DeltaDesk | None = None

    def answer(self, channel: Channel[FromSupervisor], request: ApplyDeltas) -> None:
        channel.send(Progress(request.number, "fetching"))  # as `_answer` does
        from anabranch_server.loader.applying import DeltaDesk
        from anabranch_server.loader.origin import open_origin

        cache = self._config.folders.cache
        self._desk = self._desk or DeltaDesk(cache)
        origin = open_origin(self._config.repository, cache, request.in_use, request.since)
        channel.send(self._desk.apply(request, channel.send, origin))
        channel.flush(_FLUSH_S)

    def close(self) -> None:
        if self._desk is not None:
            self._desk.close()
