"""Blocking HTTP: a pool of kept-alive connections for each endpoint."""

import math
import select
import threading
import time
from collections.abc import Sequence
from typing import Final

from anabranch_client.addresses import Address
from anabranch_client.calls import Answer, Call
from anabranch_client.connection import Connection
from anabranch_client.flights import Flights, Landing
from anabranch_client.policy import Attempt, AttemptFailed

__all__ = ["IDLE", "TIMEOUT_HEADER", "HttpTransport", "sent_headers"]

IDLE: Final = 64
"""Most idle connections that are kept for an endpoint."""

TIMEOUT_HEADER: Final = "anabranch-timeout-ms"


def sent_headers(call: Call[object], left_s: float) -> dict[str, str]:
    """Return the headers of an attempt; a call that names a timeout is told what is left of it."""
    headers = dict(call.headers)
    if TIMEOUT_HEADER in headers:
        headers[TIMEOUT_HEADER] = str(max(1, math.ceil(left_s * 1000)))
    return headers


class HttpTransport:
    """Pools of connections. Any thread may use it.

    Args:
        addresses: of the endpoints.
        connect_s: limit of opening a connection.
    """

    def __init__(self, addresses: Sequence[Address], connect_s: float) -> None:
        self._addresses: Final = tuple(addresses)
        self._connect_s: Final = connect_s
        self._lock: Final = threading.Lock()
        self._idle: Final[list[list[Connection]]] = [[] for _ in addresses]
        self._round = 0  # connections taken before the last close are not kept

    def flights(self, *, alone: bool) -> Flights:
        """Return room for the attempts of one call."""
        return _HttpFlights(self, self._connect_s, self._round)

    def close(self) -> None:
        """Close idle connections; those in use are closed after it."""
        with self._lock:
            self._round += 1
            closed = [connection for idle in self._idle for connection in idle]
            for idle in self._idle:
                idle.clear()
        for connection in closed:
            connection.close()

    def take(self, endpoint: int) -> Connection:
        """Return a connection that is nobody else's, the one used last where there is one."""
        while True:
            with self._lock:
                if not self._idle[endpoint]:
                    return Connection(self._addresses[endpoint])
                connection = self._idle[endpoint].pop()
            if connection.is_open:
                return connection
            connection.close()

    def give_back(self, endpoint: int, connection: Connection, taken_in: int) -> None:
        """Keep a connection whose answer was read."""
        with self._lock:
            idle = self._idle[endpoint]
            kept = taken_in == self._round and len(idle) < IDLE and connection.is_open
            if kept:
                idle.append(connection)
        if not kept:
            connection.close()


class _HttpFlights:
    def __init__(self, transport: HttpTransport, connect_s: float, taken_in: int) -> None:
        self._transport: Final = transport
        self._connect_s: Final = connect_s
        self._taken_in: Final = taken_in
        self._sent: dict[int, tuple[Attempt, Connection, float]] = {}
        self._failed: list[Landing] = []

    def start(self, attempt: Attempt, call: Call[object], deadline: float) -> None:
        connection = self._transport.take(attempt.endpoint)
        left_s = deadline - time.monotonic()
        headers = sent_headers(call, left_s)
        try:
            connection.send(call.method, call.path, call.body, headers, deadline, self._connect_s)
        except AttemptFailed as failed:
            self._failed.append((attempt, failed))
            return
        except TimeoutError:
            pass  # closed; the deadline ends the call
        else:
            self._sent[connection.fileno()] = (attempt, connection, deadline)

    def wait(self, until: float) -> Landing | None:
        if self._failed:
            return self._failed.pop()
        number = self._readable(until)
        if number is None:
            return None
        attempt, connection, deadline = self._sent[number]
        try:
            ended: Answer | AttemptFailed = connection.receive(deadline)
        except AttemptFailed as failed:
            ended = failed
        except TimeoutError:
            del self._sent[number]
            return None
        del self._sent[number]
        if isinstance(ended, Answer):
            self._transport.give_back(attempt.endpoint, connection, self._taken_in)
        return attempt, ended

    def cancel(self) -> None:
        for _, connection, _ in self._sent.values():
            connection.abandon()
        self._sent.clear()

    def _readable(self, until: float) -> int | None:
        """Return the socket on which an answer begins first."""
        if len(self._sent) == 1:
            ((number, (_, _, deadline)),) = self._sent.items()
            if deadline <= until:
                return number  # reading it waits as long
        poller = select.poll()
        for number in self._sent:
            poller.register(number, select.POLLIN)
        for number, _ in poller.poll(max(0.0, until - time.monotonic()) * 1000):
            return number
        return None
