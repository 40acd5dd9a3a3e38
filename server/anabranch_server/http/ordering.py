"""The answering half of a connection: turns in order, grouped writes, and how it ends.

Invariants: answers are written in the order of their requests, hot and cold mixed; what is ready
together is written together; after the last answer nothing is read any more; a peer that was
refused in the middle of its request gets time to see why.
"""

import asyncio
import math
import time
from collections import deque
from functools import partial
from typing import Any, ClassVar, Final, Literal

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from anabranch_server.clients import Client
from anabranch_server.doors import Protocol
from anabranch_server.http.answers import CLOSES
from anabranch_server.http.calls import Call
from anabranch_server.http.read_gate import ReadGate
from anabranch_server.http.shared import Shared
from anabranch_server.http.turns import ColdTurn, FailedTurn, Turn
from anabranch_wire.errors import Overloaded

__all__ = ["OrderedConnection"]

_LINGER_S: Final = 2.0


class OrderedConnection(HttpToolsProtocol):
    """Writes the answers of one connection. Everything runs on its event loop.

    Attributes:
        shared: what all connections of the door share.
        protocol: under which name connections are counted: what they are for shows later.
        is_gone: the transport is closed.
        is_deaf: whatever still comes from the peer is discarded.
        gate: flow control; uvicorn knows it as `flow`.
        turns: requests not answered yet, in order.
        heard: coarse `time.monotonic()` of the last bytes in or out.
        has_ended: the peer sends nothing more, but waits for its answers.
        caller: who is connected; its `requests` count the turns of all its connections.
    """

    shared: ClassVar[Shared]
    protocol: ClassVar[Protocol] = "oip_http"

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        parts = self.shared.parts(self.loop, config.timeout_keep_alive)
        self.sink = parts.sink
        self.watch = parts.watch
        self.decoders = parts.decoders
        self.limits = self.shared.context.limits
        self.observer = self.shared.context.observer
        self.gate: ReadGate
        self.is_gone = False
        self.is_deaf = False
        self.turns: deque[Turn] = deque()
        self.heard = 0.0
        self.has_ended = False
        self.caller: Client
        self._old_from = math.inf
        self._is_old = False
        self._is_stopping = False
        self._must_linger = False
        self._lingers_since: float | None = None
        self._bytes_written = 0
        self._bytes_taken = 0
        self._taken_at = 0.0

    # --- opening and closing --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a socket
        """Count the connection, or refuse it."""
        super().connection_made(transport)
        self.flow = self.gate = ReadGate(transport)
        self.watch.add(self)
        self.heard = self._taken_at = self.watch.now
        self._old_from = self.watch.now + self.shared.tenure.age_s()
        self.caller = self.shared.context.clients.connect(_address(self.client))
        self.observer.connections(self.protocol, 1)
        if len(self.watch) > self.limits.max_connections:
            self.refuse(Overloaded(f"{self.limits.max_connections} connections are open"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything that nobody waits for any more."""
        self.is_gone = self.is_deaf = True
        self.watch.remove(self)
        self.observer.connections(self.protocol, -1)
        self.caller.requests -= len(self.turns)
        for turn in self.turns:
            turn.abandon()
        self.turns.clear()
        self.shared.context.clients.disconnect(self.caller)
        self.shared.tenure.on_closed()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Stay connected, for what is to be answered, with a peer that sends nothing more.

        One that leaves its last request incomplete, or seems to have left itself, gets nothing.
        """
        turns = self.turns
        if self.is_receiving() or not turns or not turns[-1].is_awaited(time.monotonic()):
            return False
        self.has_ended = self.is_deaf = True
        return True

    def shutdown(self) -> None:
        """Finish what was begun, then close; uvicorn calls it when the server stops."""
        self._is_stopping = True
        self._close_when_done()

    def is_receiving(self) -> bool:
        """Whether a request has begun to arrive and is not complete."""
        raise NotImplementedError

    def describe(self) -> Call:
        """Return what is known of the request that is being received."""
        raise NotImplementedError

    def cycle_received(self) -> RequestResponseCycle | None:
        """Return uvicorn's state of the request that is being received, if it is a cold one."""
        raise NotImplementedError

    def refuse(self, error: Exception) -> None:
        """Answer `error` after everything before it, read nothing more, and close."""
        if self.is_deaf:
            return
        self.is_deaf = self._must_linger = True
        cycle = self.cycle_received()
        if cycle is not None and cycle.response_started:
            self._close()  # whatever is said now would be taken for a part of that answer
            return
        if cycle is not None:
            self.caller.requests -= 1
            self.turns.pop().abandon()
        self.caller.requests += 1
        self.turns.append(FailedTurn(error, self.describe()))
        self.flush()

    def cut(self, reason: Literal["slow_reader", "slow_writer", "idle"]) -> None:
        """Close at once, whatever waits."""
        self.observer.connection_cut(self.protocol, reason)
        self.transport.abort()

    def give_up(self) -> None:
        """Close at once, after a fault of ours: what was written is not known any more."""
        self.transport.abort()

    # --- answers --------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write every answer that is ready and whose turn it is, in one piece."""
        turns = self.turns
        shared = self.shared
        state = self.server_state
        if state.default_headers is not shared.dated_by:
            shared.date(state.default_headers)
        ready: list[bytes] = []
        done: list[Turn] = []
        closes = False
        while turns and not closes and (answer := turns[0].answer) is not None:
            turn = turns.popleft()
            done.append(turn)
            ending = turn.ending
            if ending is CLOSES or (
                not turns and not self.is_receiving() and (self._is_ending() or self._retires())
            ):
                closes = True
                ending = CLOSES
            ready += (answer.head, shared.dated, ending, *answer.body)
        if done:
            # Counted first: whoever has an answer finds it in the metrics.
            self.caller.requests -= len(done)
            now = time.monotonic()
            for turn in done:
                turn.written(now)
            state.total_requests += len(done)
            self._write(b"".join(ready))
        if closes:
            self._close()
        elif turns:
            turns[0].begin()

    def on_response_complete(self) -> None:
        """Go on with the turn after one of ASGI; uvicorn calls it."""
        self.server_state.total_requests += 1
        if self.turns:
            self.caller.requests -= 1
            self.turns.popleft()
        self.heard = self.watch.now
        if not self.transport.is_closing():
            self.gate.resume_reading()
            self.flush()
            self._close_when_done()

    def pause_writing(self) -> None:
        """Stop reading as long as the peer does not take its answers."""
        super().pause_writing()
        self.gate.hold()

    def look(self, now: float) -> None:
        """Act on what has taken too long; `Watch` calls it on every tick."""
        expired = [turn for turn in self.turns if turn.expire(now)]
        if expired:
            self.flush()
        self._is_old = now >= self._old_from
        waiting = self.transport.get_write_buffer_size()
        taken = self._bytes_written - waiting
        if not waiting or taken != self._bytes_taken:
            self._bytes_taken = taken
            self._taken_at = now
        elif now - self._taken_at >= self.limits.write_timeout_s:
            self.cut("slow_reader")
            return
        if self._lingers_since is not None:
            if waiting:
                self._lingers_since = now
            elif now - self._lingers_since >= _LINGER_S:
                self.transport.abort()
        elif not self.is_deaf:
            self.look_at_request(now)

    def look_at_request(self, now: float) -> None:
        """Act on a peer that sends nothing although it is its move."""
        raise NotImplementedError

    def _write(self, data: bytes) -> None:
        self.transport.write(data)
        self._bytes_written += len(data)
        self.heard = self.watch.now

    def _is_ending(self) -> bool:
        return self.has_ended or self._is_stopping or self.shared.context.lifecycle.is_draining

    def _retires(self) -> bool:
        """Whether the connection ends after this answer, so that its client connects anew."""
        if not self._is_old:
            if not self.shared.tenure.surplus:
                return False
            self.shared.tenure.surplus -= 1
        self._must_linger = True  # the next request may be on its way
        return True

    def _close_when_done(self) -> None:
        if (self.has_ended or self._is_stopping) and not self.turns and not self.is_receiving():
            self.transport.close()

    def _close(self) -> None:
        """Close after the last answer; a peer that still sends must be able to read it first."""
        self.is_deaf = True
        if not self._must_linger or not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closing with unread bytes would reset the connection, and the answer with it.
        self._lingers_since = self.watch.now
        self.transport.write_eof()
        self.gate.release()
        self.gate.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Queue a request for ASGI; uvicorn calls it."""
        turn = ColdTurn(cycle, partial(self._start_cold, cycle, app))
        self.caller.requests += 1
        self.turns.append(turn)
        if self.turns[0] is turn:
            turn.begin()

    def _start_cold(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Give a request to ASGI; its answer may be the last one of the connection."""
        if len(self.turns) == 1 and self._retires():
            cycle.keep_alive = False
        super()._start_asgi_task(cycle, app)


def _address(peer: tuple[str, int] | None) -> str:
    """Return the address of a peer, that of IPv4 in its own form; empty for a local socket."""
    return peer[0].removeprefix("::ffff:") if peer else ""
