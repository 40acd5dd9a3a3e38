import pytest

from anabranch_server.clients import Clients
from anabranch_wire.errors import Overloaded


def test_requests_and_calls_of_an_address_count_together() -> None:
    clients = Clients()
    client = clients.connect("192.0.2.1")
    client.requests += 2
    assert clients.begin_call("192.0.2.1") is client

    client.check(4)
    client.check(3, counted=1)
    with pytest.raises(Overloaded, match="3 requests of this client wait: at most 3"):
        client.check(3)

    clients.end_call(client)
    client.check(3)


def test_nobody_is_kept_after_the_last_connection_and_call() -> None:
    clients = Clients()
    first, second = clients.connect("192.0.2.1"), clients.connect("192.0.2.2")
    call = clients.begin_call("192.0.2.1")
    clients.disconnect(first)
    assert clients.find("192.0.2.1") is call

    clients.end_call(call)
    clients.disconnect(second)

    assert len(clients) == 0
    assert clients.find("192.0.2.1") is None


def test_whoever_came_and_went_was_seen() -> None:
    clients = Clients()
    clients.disconnect(clients.connect("192.0.2.1"))
    clients.end_call(clients.begin_call("192.0.2.2"))

    assert clients.seen == 2
    assert len(clients) == 0
