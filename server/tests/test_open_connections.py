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
