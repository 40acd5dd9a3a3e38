"""The threads that grpcio runs scoring calls on.

`concurrent.futures` would do, but spends about as much on a call as the rest of grpcio: a future
with a condition, three locks and a semaphore for each. grpcio needs of all that only to be told
when a call is over.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from anabranch_server.clients import Client, Clients
from anabranch_server.rpc.metadata import address_of

__all__ = ["CallThreads", "Completion"]

_LOGGER = logging.getLogger(__name__)

_Callback = Callable[["Completion"], object]


class Completion:
    """The end of one call, in place of its future. Safe from any thread."""

    __slots__ = ("_callbacks", "_done")

    def __init__(self) -> None:
        self._callbacks: list[_Callback] = []
        self._done = False

    def add_done_callback(self, callback: _Callback) -> None:
        """Run `callback` once, when the call is over; at once if it is."""
        self._callbacks.append(callback)
        if self._done:
            self._tell()

    def finish(self) -> None:
        """Say that the call is over."""
        self._done = True
        self._tell()

    def _tell(self) -> None:
        # Both threads may come here; each callback is popped by one of them.
        while self._callbacks:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback(self)


class CallThreads:
    """A fixed number of daemon threads before one queue.

    Daemons, because a call in flight must not keep a process that ends.

    Args:
        count: number of threads.
        name: of the threads, before a number.
        clients: counts the calls of each client, those that wait included.

    Attributes:
        count: as given.
    """

    def __init__(self, count: int, name: str, clients: Clients | None = None) -> None:
        self.count = count
        self._clients = Clients() if clients is None else clients
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: Final = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True)
            for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Calls that no thread has taken yet."""
        return self._calls.qsize()

    def submit(self, function: Callable[..., object], *arguments: object) -> Completion:
        """Run `function(*arguments)` on one of the threads, in the order of submission."""
        completion = Completion()
        address = _caller(arguments)
        client = self._clients.begin_call(address) if address else None
        self._calls.put((completion, function, arguments, client))
        return completion

    def close(self) -> None:
        """End the threads after the calls that wait."""
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            completion, function, arguments, client = call
            try:
                function(*arguments)
            except Exception:  # the edge of the thread; grpcio answers its calls' own failures
                _LOGGER.exception("a call failed in grpcio", extra={"event": "internal_error"})
            if client is not None:
                self._clients.end_call(client)
            completion.finish()
            # An ended call's memory must not live until the next one comes.
            del call, completion, function, arguments, client


_Call = tuple[Completion, Callable[..., object], tuple[object, ...], Client | None]


def _caller(arguments: tuple[object, ...]) -> str:
    """Return the address that a call comes from; empty if this is no call of grpcio's.

    Behaviours learn who calls only when a thread has them. What grpcio submits has the event of
    the call as its second argument, and that knows.
    """
    peer = getattr(getattr(arguments[1], "call", None), "peer", None) if arguments[1:] else None
    return address_of(peer().decode()) if peer is not None else ""
