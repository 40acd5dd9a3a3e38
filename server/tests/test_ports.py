import os
import socket
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, suppress
from subprocess import PIPE, Popen

import pytest

from anabranch_server.config import Addresses
from anabranch_server.ports import Claim, claim, claim_all, listener_beside
from anabranch_server.processes.boot import ListenAddress
from anabranch_wire.errors import Conflict, Unavailable


@pytest.fixture
def claimed() -> Iterator[Claim]:
    one = claim("127.0.0.1", 0, "HTTP")
    yield one
    one.held.close()


def shared_socket(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


def test_a_free_port_is_chosen_and_named(claimed: Claim) -> None:
    assert claimed.port > 0
    assert str(claimed) == f"127.0.0.1:{claimed.port}"


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_nobody_else_can_claim_it(claimed: Claim, listening: bool, host: str) -> None:
    if listening:
        claimed.listen(5)

    with pytest.raises(Conflict, match=f"gRPC: port {claimed.port} on .* is taken"):
        claim(host, claimed.port, "gRPC")


def test_workers_of_the_server_share_it(claimed: Claim) -> None:
    claimed.listen(5)
    with shared_socket(claimed.port) as worker:
        worker.listen(5)


@pytest.mark.parametrize("server_closes_first", [False, True])
def test_it_can_be_claimed_again_while_old_connections_end(server_closes_first: bool) -> None:
    first = claim("127.0.0.1", 0, "HTTP")
    first.listen(5)
    client = socket.create_connection(("127.0.0.1", first.port))
    server, _ = first.held.accept()
    early, late = (server, client) if server_closes_first else (client, server)
    early.close()
    assert late.recv(1) == b""
    late.close()
    first.held.close()

    again = claim("127.0.0.1", first.port, "HTTP")

    again.held.close()


def test_of_servers_that_start_together_one_gets_the_port() -> None:
    with closing(claim("127.0.0.1", 0, "HTTP").held) as free:
        port = free.getsockname()[1]
    script = textwrap.dedent(
        f"""
        import sys
        from anabranch_server.ports import claim
        from anabranch_wire.errors import Conflict
        sys.stdin.readline()
        try:
            kept = claim("127.0.0.1", {port}, "HTTP")
            print("claimed", flush=True)
        except Conflict:
            print("conflict", flush=True)
        sys.stdin.readline()
        """
    )
    command = [sys.executable, "-c", script]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    racers = [Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environ) for _ in range(4)]
    said = []
    try:
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            assert racer.stdout
            said.append(racer.stdout.readline().strip())
    finally:
        for racer in racers:
            racer.communicate("end\n", timeout=30)

    assert sorted(said) == ["claimed", "conflict", "conflict", "conflict"]


def test_unknown_and_foreign_hosts_are_errors() -> None:
    with pytest.raises(Unavailable, match=r"host 'no-such\.invalid' is not known"):
        claim("no-such.invalid", 0, "HTTP")
    with pytest.raises(Unavailable, match=r"port 0 on 192\.0\.2\.1"):
        claim("192.0.2.1", 0, "HTTP")


def test_two_doors_on_one_port_conflict_and_leave_nothing_behind(claimed: Claim) -> None:
    claimed.held.close()
    port = claimed.port

    with pytest.raises(Conflict, match=r"gRPC: .* is taken: choose another with --grpc-port"):
        claim_all(Addresses("127.0.0.1", port, port, 0, "127.0.0.1", 0, 0))

    claim("127.0.0.1", port, "HTTP").held.close()


def test_ipv6_addresses_are_bracketed() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    one = claim("::1", 0, "HTTP")
    assert str(one) == f"[::1]:{one.port}"
    one.held.close()


def test_processes_that_come_and_go_listen_beside_a_claim_that_never_listens(
    claimed: Claim,
) -> None:
    for _ in range(3):
        listeners = [listener_beside(claimed, backlog=64) for _ in range(2)]
        taken = 0
        clients = []
        for _ in range(40):  # one that went to the claim would hang, one that met nobody fails
            clients.append(socket.create_connection((claimed.host, claimed.port), timeout=10))
        for listener in listeners:
            listener.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    taken += 1
        assert taken == len(clients)
        for client in clients:
            client.close()
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize("listening", [False, True])
def test_nobody_else_can_claim_a_port_that_processes_share(claimed: Claim, listening: bool) -> None:
    beside = listener_beside(claimed, backlog=5 if listening else None)
    with closing(beside), pytest.raises(Conflict, match="is taken"):
        claim("127.0.0.1", claimed.port, "HTTP")
    with pytest.raises(Conflict, match="is taken"):
        claim("127.0.0.1", claimed.port, "HTTP")


@pytest.mark.parametrize("server_closes_first", [False, True])
def test_a_shared_port_can_be_claimed_again_while_old_connections_end(
    server_closes_first: bool,
) -> None:
    first = claim("127.0.0.1", 0, "HTTP")
    listener = listener_beside(first, backlog=5)
    client = socket.create_connection(("127.0.0.1", first.port))
    server, _ = listener.accept()
    early, late = (server, client) if server_closes_first else (client, server)
    early.close()
    assert late.recv(1) == b""
    late.close()
    listener.close()
    listener_beside(first, backlog=5).close()  # a restarted process
    first.held.close()

    claim("127.0.0.1", first.port, "HTTP").held.close()


def test_there_is_no_listening_beside_what_others_have() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        host, port = other.getsockname()
        with pytest.raises(Conflict, match=f"port {port} on 127.0.0.1 is taken by another server"):
            listener_beside(ListenAddress(host, port), backlog=5)
    with pytest.raises(Unavailable, match=r"port 80 on 192\.0\.2\.1"):
        listener_beside(ListenAddress("192.0.2.1", 80))
