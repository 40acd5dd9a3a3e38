"""The seam between the loop and a protocol: a link carries one request at a time.

HTTP/1.1 is `http_link.py`; another protocol implements `Transport` and changes nothing else.
"""

from typing import Protocol

from openloop.answers import Reply

__all__ = ["Link", "LinkOwner", "Transport"]


class LinkOwner(Protocol):
    """Is told what happens on a link, in the event loop's thread."""

    def answered(self, reply: Reply) -> None:
        """The request that was sent has its answer, whole."""
        ...

    def malformed(self) -> None:
        """What came is no answer; `lost` follows."""
        ...

    def lost(self) -> None:
        """The link has ended, by either side; called once, and nothing is called after it."""
        ...


class Link(Protocol):
    """One open connection, used in the event loop's thread."""

    @property
    def local_port(self) -> int:
        """Its own port; 0 where it has none."""
        ...

    def send(self, request: bytes) -> None:
        """Send one request; the one before it has been answered."""
        ...

    def close(self) -> None:
        """End it at once, unsent bytes and all; `lost` follows."""
        ...


class Transport(Protocol):
    """Makes links to one server."""

    async def connect(self, owner: LinkOwner) -> Link:
        """Return an open link.

        Raises:
            OSError: no connection could be made.
        """
        ...
