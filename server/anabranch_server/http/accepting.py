"""Accepting connections, each worker on a socket of its own, and sharing them out evenly.

The kernel deals connections to the workers' sockets by a hash: of 32, four workers got 5, 7, 12 and
9. So whoever accepts one looks who has the fewest and passes it on unread; every byte of it is
still in the kernel then, and moves along.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from anabranch_server.http.siblings import Siblings

__all__ = ["Acceptor"]

_LOGGER: Final = logging.getLogger(__name__)

_AT_ONCE: Final = 32
"""Connections accepted at one go; requests of others wait meanwhile."""

_LAST: Final = 65_536
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REST_S: Final = 1.0


class Acceptor:
    """Takes connections from `start` to `stop`. Belongs to one event loop.

    Args:
        listener: bound, and listening or not; closed by `stop`.
        siblings: the other workers.
        adopt: is given each connection that stays here, and owns it.
    """

    def __init__(
        self,
        listener: socket.socket,
        siblings: Siblings,
        adopt: Callable[[socket.socket], None],
    ) -> None:
        self._listener = listener
        self._siblings = siblings
        self._adopt = adopt
        self._loop: asyncio.AbstractEventLoop
        self._rest: asyncio.TimerHandle | None = None
        self._is_willing = True
        self._is_stopped = False

    def start(self, backlog: int) -> None:
        """Begin to take connections, those first that an earlier worker of this number has left.

        Args:
            backlog: connections that the kernel keeps until they are taken.

        Raises:
            OSError: the socket cannot be listened on.
        """
        self._listener.setblocking(False)
        # Connections inherit both. Without the second, those that are still closing would keep the
        # next server from the port.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.listen(backlog)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._siblings.inbox, self._take)
        self._take()
        self._resume()

    def be_willing(self, willing: bool) -> None:
        """Say whether fresh connections are welcome; unwelcome ones go to siblings if any takes."""
        self._is_willing = willing
        self._siblings.accept(willing=willing and self._rest is None)

    def stop(self) -> None:
        """Take what has come until now, then close the port."""
        self._is_stopped = True
        self._siblings.accept(willing=False)
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._listener)
        self._loop.remove_reader(self._siblings.inbox)
        self._accept(_LAST)
        self._listener.close()
        self._take()

    def _resume(self) -> None:
        self._rest = None
        self._loop.add_reader(self._listener, self._accept, _AT_ONCE)
        self.be_willing(self._is_willing)

    def _accept(self, most: int) -> None:
        siblings = self._siblings
        for _ in range(most):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SHORTAGES:
                    self._pause(error)
                    return
                continue  # that one has left already
            to = siblings.place()
            if to != siblings.index and siblings.pass_on(connection, to):
                connection.close()
            else:
                self._adopt(connection)

    def _take(self) -> None:
        siblings = self._siblings
        try:
            while (connection := siblings.take()) is not None:
                self._adopt(connection)
        except EOFError:
            self._loop.remove_reader(siblings.inbox)
        except OSError as error:
            self._pause(error)

    def _pause(self, error: OSError) -> None:
        """Leave connections to the kernel and the siblings until there is room for them again."""
        _LOGGER.error(
            "no connections are accepted for %g s: %s",
            _REST_S,
            error.strerror,
            extra={"event": "accepting_paused"},
        )
        if self._is_stopped:
            return
        self._loop.remove_reader(self._listener)
        if self._rest is not None:
            self._rest.cancel()
        self._rest = self._loop.call_later(_REST_S, self._resume)
        self._siblings.accept(willing=False)
