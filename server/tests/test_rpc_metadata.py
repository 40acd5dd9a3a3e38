import pytest

from anabranch_server.rpc.metadata import address_of


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::1"),
        ("ipv6:%5B::ffff:192.0.2.1%5D:4711", "192.0.2.1"),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_addresses_are_those_of_http(peer: str, address: str) -> None:
    assert address_of(peer) == address
