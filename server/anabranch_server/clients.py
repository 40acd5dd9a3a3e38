"""How much each client address keeps a worker busy, over all its connections and both protocols."""

import threading

from anabranch_wire.errors import Overloaded

__all__ = ["Client", "Clients"]


class Client:
    """One address that is connected or calls.

    Attributes:
        address: without a port.
        requests: HTTP requests not answered yet; only the event loop's thread changes it.
        calls: gRPC calls not answered yet; `Clients` alone changes it.
        holds: connections and calls that keep this entry.
    """

    __slots__ = ("address", "calls", "holds", "requests")

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests = 0
        self.calls = 0
        self.holds = 0

    def check(self, most: int, counted: int = 0) -> None:
        """Return when one more request may come.

        Args:
            most: how many may be unanswered together.
            counted: 1 where that request is among those of this client already.

        Raises:
            Overloaded: `most` others are not answered yet.
        """
        busy = self.requests + self.calls - counted
        if busy >= most:
            raise Overloaded(f"{busy} requests of this client wait: at most {most} are allowed")


class Clients:
    """The clients of one worker. Safe from any thread.

    Invariant: there are no more entries than connections and calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_address: dict[str, Client] = {}
        self._seen = 0

    @property
    def seen(self) -> int:
        """Connections and calls there have ever been, those included that came and went."""
        return self._seen

    def __len__(self) -> int:
        return len(self._by_address)

    def connect(self, address: str) -> Client:
        """Return the client at `address`; kept until `disconnect`."""
        with self._lock:
            return self._hold(address)

    def disconnect(self, client: Client) -> None:
        """One connection of `client` is over; its requests were counted off before."""
        with self._lock:
            self._let_go(client)

    def find(self, address: str) -> Client | None:
        """Return the client at `address` if there is one."""
        return self._by_address.get(address)

    def begin_call(self, address: str) -> Client:
        """Return the client at `address`, with one call more."""
        with self._lock:
            client = self._hold(address)
            client.calls += 1
            return client

    def end_call(self, client: Client) -> None:
        """One call of `client` is over."""
        with self._lock:
            client.calls -= 1
            self._let_go(client)

    def _hold(self, address: str) -> Client:
        self._seen += 1
        client = self._by_address.get(address)
        if client is None:
            client = self._by_address[address] = Client(address)
        client.holds += 1
        return client

    def _let_go(self, client: Client) -> None:
        client.holds -= 1
        if not client.holds:
            del self._by_address[client.address]
