import os
import socket
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from subprocess import PIPE, Popen

import pytest

from anabranch_server.config import Addresses
from anabranch_server.ports import Claim, claim, claim_all
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
