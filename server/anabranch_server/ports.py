"""Claiming the ports of a server, so that every later step may rely on having them.

A port is claimed in an order that lets exactly one server have it, although its workers share it
with SO_REUSEPORT afterwards (Linux, `inet_csk_bind_conflict`): a probe binds and listens without
SO_REUSEPORT, which fails beside any other server; then it allows sharing, the lasting socket binds
beside it, and only then the probe is closed. Until it listens, the lasting socket goes without
SO_REUSEADDR, so that another server's probe fails on it all the same.

The lasting socket of a server with several processes never listens, so the kernel gives it no
connections; processes that come and go listen on sockets bound beside it.
"""

import errno
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from anabranch_server.config import Addresses
from anabranch_wire.errors import Conflict, PermissionDenied, Unavailable

__all__ = ["Claim", "Claims", "PortAddress", "claim", "claim_all", "listener_beside"]


class PortAddress(Protocol):
    """Where a claim is; `Claim` and `ListenAddress` are such."""

    @property
    def host(self) -> str:
        """The address it is bound to, without brackets."""
        ...

    @property
    def port(self) -> int:
        """The port, never 0."""
        ...


@dataclass(frozen=True, slots=True)
class Claim:
    """A port that is ours until `held` is closed.

    Attributes:
        held: bound, not listening, blocking; other sockets of this user may bind beside it with
            SO_REUSEPORT.
        host: the address it is bound to, without brackets.
        port: the port, never 0.
    """

    held: socket.socket
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def listen(self, backlog: int) -> socket.socket:
        """Start to take connections on the claim's own socket and return it.

        Connections inherit SO_REUSEADDR from here; without it those that are still closing would
        keep the next server from the port.
        """
        self.held.listen(backlog)
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return self.held


@dataclass(frozen=True, slots=True)
class Claims:
    """The ports of one server.

    Attributes:
        http: the data door for HTTP.
        grpc: the data door for gRPC.
        metrics: metrics and probes.
        admin: the admin door.
        admin_grpc: the admin door for gRPC.
    """

    http: Claim
    grpc: Claim
    metrics: Claim
    admin: Claim
    admin_grpc: Claim

    def close(self) -> None:
        """Give up the ports that nothing else listens on."""
        for one in (self.http, self.grpc, self.metrics, self.admin, self.admin_grpc):
            one.held.close()


def claim(host: str, port: int, purpose: str) -> Claim:
    """Claim one port.

    Args:
        host: name or address of an interface; `0.0.0.0` or `::` for all.
        port: the port; 0 for any free one.
        purpose: what it is for, as messages say it.

    Raises:
        Conflict: another process has the port.
        PermissionDenied: the port is reserved for others.
        Unavailable: there is no such interface.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise Unavailable(f"{purpose}: host {host!r} is not known") from None
    lasting = _tcp_socket(family)
    try:
        with _tcp_socket(family) as probe:
            probe.bind(address)
            probe.listen(1)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound = probe.getsockname()
            lasting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            lasting.bind(bound)
            lasting.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        lasting.close()
        where = f"{purpose}: port {port} on {host}"
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"{where} is taken") from None
        if error.errno == errno.EACCES:
            raise PermissionDenied(f"{where}: this user may not listen there") from None
        raise Unavailable(f"{where}: {error.strerror}") from None
    return Claim(lasting, bound[0], bound[1])


def claim_all(addresses: Addresses) -> Claims:
    """Claim the ports of every door.

    Raises:
        Conflict: two doors name one port, or another process has one.
        PermissionDenied: a port is reserved for others.
        Unavailable: there is no such interface.
    """
    claimed: list[Claim] = []
    with ExitStack() as undo:
        for purpose, host, port in (
            ("HTTP", addresses.host, addresses.http_port),
            ("gRPC", addresses.host, addresses.grpc_port),
            ("metrics", addresses.host, addresses.metrics_port),
            ("admin", addresses.admin_host, addresses.admin_port),
            ("admin-gRPC", addresses.admin_host, addresses.admin_grpc_port),
        ):
            try:
                one = claim(host, port, purpose)
            except Conflict as error:
                remedy = f"choose another with --{purpose.lower()}-port, where 0 is a free one"
                raise Conflict(f"{error.message}: {remedy}") from None
            undo.callback(one.held.close)
            claimed.append(one)
        undo.pop_all()
    return Claims(*claimed)


def listener_beside(address: PortAddress, backlog: int | None = None) -> socket.socket:
    """Return a socket of this process's own on a port that the server has claimed.

    Args:
        address: where the claim is; it has to be held, by whatever process of this user.
        backlog: connections that the kernel keeps until they are taken; None leaves the listening
            to the caller. Without a listener a connection is refused, so all processes of a server
            listen only when they can answer.

    Raises:
        Conflict: the port is not claimed, and somebody else has it.
        Unavailable: there is no such interface any more.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = _tcp_socket(family)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((address.host, address.port))
        if backlog is not None:
            made.listen(backlog)
    except OSError as error:
        made.close()
        where = f"port {address.port} on {address.host}"
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"{where} is taken by another server") from None
        raise Unavailable(f"{where}: {error.strerror}") from None
    return made


def _tcp_socket(family: int) -> socket.socket:
    """A socket that may bind beside connections of an earlier server that are still closing."""
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return made
