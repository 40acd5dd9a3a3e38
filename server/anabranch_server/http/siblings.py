"""What the workers of a server know of each other's connections, and how they pass them on.

Numbers are on the balance page (`processes/board.py`), connections travel as descriptors over the
siblings' inboxes. Invariant: a connection is counted with the worker that will have it before
anybody could see that it has left another one; so decisions made at the same moment by several
workers see each other.
"""

import array
import errno
import socket
from collections.abc import Mapping
from typing import Final

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.http.spread import best_place
from anabranch_server.processes.board import BalanceLayout

__all__ = ["Siblings"]

_MARK: Final = b"c"
_MOVES: Final = 4
_STEADY: Final = 10


class Siblings:
    """One worker's view of all workers. Belongs to its event loop.

    Args:
        index: number of this worker.
        layout: of the balance page.
        words: the balance page, writable.
        inbox: brings what siblings pass on; stays its owner's, and is never closed here.
        outboxes: by worker, the other ends of their inboxes; not closed here either.

    Attributes:
        index: as given.
    """

    def __init__(
        self,
        index: int,
        layout: BalanceLayout,
        words: SharedWords,
        inbox: socket.socket,
        outboxes: Mapping[int, socket.socket],
    ) -> None:
        self.index = index
        self._layout = layout
        self._words = words
        self._inbox = inbox
        self._outboxes = outboxes
        self._workers = range(layout.workers)
        self._open = 0
        self._received = words.load(layout.received(index))
        self._astray = (0, 0)
        # Whatever an earlier worker of this number left behind holds no longer.
        for word in (layout.accepting(index), layout.open(index), layout.queue(index)):
            words.store(word, 0)

    @property
    def inbox(self) -> socket.socket:
        """Where siblings put connections; `take` takes them."""
        return self._inbox

    # --- numbers --------------------------------------------------------------------------------

    def loads(self) -> list[int]:
        """Return the connections that each worker holds or is about to hold."""
        load, layout = self._words.load, self._layout
        return [
            max(0, load(layout.open(i)) + load(layout.sent(i)) - load(layout.received(i)))
            for i in self._workers
        ]

    def takes(self) -> list[bool]:
        """Return which workers take connections."""
        load, layout = self._words.load, self._layout
        return [load(layout.accepting(i)) == 1 for i in self._workers]

    def queues(self) -> list[int]:
        """Return the requests that wait or are computed in each worker."""
        load, layout = self._words.load, self._layout
        return [load(layout.queue(i)) for i in self._workers]

    def accept(self, *, willing: bool) -> None:
        """Say whether siblings may pass connections on to this worker."""
        self._words.store(self._layout.accepting(self.index), int(willing))

    def tell_queue(self, requests: int) -> None:
        """Say how many requests wait or are computed here."""
        self._words.store(self._layout.queue(self.index), requests)

    def closed(self) -> None:
        """A connection that this worker had is over."""
        self._count(self.index, -1)

    def check_astray(self) -> None:
        """Correct what workers that died in the middle of passing on have left wrong.

        To be called in steady intervals, while the inbox is empty: what was counted as sent and
        does not come during many of them will not come.
        """
        sent = self._words.load(self._layout.sent(self.index))
        seen, times = self._astray
        if sent == self._received or sent != seen:
            self._astray = (sent, 0)
        elif times + 1 < _STEADY:
            self._astray = (sent, times + 1)
        else:
            self._store_received(sent)

    # --- connections ----------------------------------------------------------------------------

    def place(self) -> int:
        """Return the worker that a connection which was just accepted goes to, and count it there.

        Others decide at the same moment: counting comes first, then a second look.
        """
        at = self.index
        self._count(at, 1)
        if self._layout.workers == 1:
            return at
        for _ in range(_MOVES):
            to = best_place(self.loads(), self.takes(), at)
            if to == at:
                break
            self._count(to, 1)
            self._count(at, -1)
            at = to
        return at

    def pass_on(self, connection: socket.socket, to: int) -> bool:
        """Hand `connection` to a sibling that it was counted with.

        Returns:
            Whether it was; if not, it is counted here again and to be kept. In either case
            `connection` is the caller's to close or keep.
        """
        rights = array.array("i", [connection.fileno()])
        try:
            # Not `socket.send_fds`: it forgets the flags.
            self._outboxes[to].sendmsg(
                [_MARK],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
            )
        except (OSError, KeyError):
            self._count(self.index, 1)
            self._count(to, -1)
            return False
        return True

    def take(self) -> socket.socket | None:
        """Return a connection that a sibling passed on, counted here; None when there is none.

        Raises:
            EOFError: nobody is left to send any.
            OSError: the process has no descriptors left; the connection is lost.
        """
        while True:
            try:
                mark, rights, _, _ = self._inbox.recvmsg(
                    1, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
                )
            except (BlockingIOError, InterruptedError):
                return None
            if not mark:
                raise EOFError
            if rights:
                self._count(self.index, 1)
            self._store_received(self._received + 1)
            if not rights:
                raise OSError(errno.EMFILE, "a connection was lost for want of descriptors")
            return socket.socket(fileno=int.from_bytes(rights[0][2][:4], "little"))

    def _count(self, worker: int, change: int) -> None:
        if worker == self.index:
            self._open += change
            self._words.store(self._layout.open(worker), self._open)
        else:
            self._words.add(self._layout.sent(worker), change)

    def _store_received(self, received: int) -> None:
        self._received = received
        self._words.store(self._layout.received(self.index), received)
