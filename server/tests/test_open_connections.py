import os
import socket
from pathlib import Path

from anabranch_server.open_connections import open_connections


def test_connections_are_counted_at_the_side_that_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert open_connections(port) == 0
        with (
            socket.create_connection(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.1", port)),
        ):
            assert open_connections(port) == 2


def test_ipv6_counts_too() -> None:
    if not socket.has_dualstack_ipv6():
        return
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("::1", port)):
            assert open_connections(port) == 1


def test_none_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    assert open_connections(80, tmp_path) is None


def test_connections_of_another_process_at_the_same_port_do_not_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as near:
            far, _ = listener.accept()
            assert open_connections(port) == 1
            here, there = socket.socketpair()
            # The only descriptor of the connection's far end is on its way to another process.
            socket.send_fds(here, [b"x"], [far.fileno()])
            far.close()
            assert open_connections(port) == 0
            _, (taken,), _, _ = socket.recv_fds(there, 1, 1)
            assert open_connections(port) == 1
            os.close(taken)
            here.close()
            there.close()
            assert near.recv(1) == b""
