"""What outlives the processes of a server: its ports' names, its shared pages, its inboxes.

All of it is made once by the launcher and handed to every process that is started; a process that
is started again finds the same words, and the connections that wait for it.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.config import ServeConfig
from anabranch_server.folders import own_folder, run_dir_at
from anabranch_server.ports import Claims, claim_all
from anabranch_server.processes.board import MODEL_SLOTS, BalanceLayout
from anabranch_server.ready import remove_ready
from anabranch_wire.errors import Conflict

__all__ = ["Estate", "Inbox", "opened_estate"]


@dataclass(frozen=True, slots=True)
class Inbox:
    """Where siblings put connections that a worker is to take.

    Attributes:
        taken_from: for the worker; neither end blocks.
        put_into: for its siblings.
    """

    taken_from: socket.socket
    put_into: socket.socket


@dataclass(frozen=True, slots=True)
class Estate:
    """What is shared and held.

    Attributes:
        claims: the ports; their sockets never listen.
        epochs: the epoch page.
        balance: the balance page.
        inboxes: by worker.
        run_dir: for the ready file.
    """

    claims: Claims
    epochs: SharedWords
    balance: SharedWords
    inboxes: tuple[Inbox, ...]
    run_dir: Path

    def withdraw(self, worker: int) -> None:
        """Say that a worker which has ended takes no connections, until the next one says so."""
        self.balance.store(BalanceLayout(len(self.inboxes)).accepting(worker), 0)

    def has_served(self) -> bool:
        """Whether any model has ever been served."""
        return any(self.epochs.load(slot) for slot in range(self.epochs.words))


@contextmanager
def opened_estate(config: ServeConfig) -> Iterator[Estate]:
    """Hold all of it until the block ends.

    Raises:
        Conflict: another process has a port, or another server the run folder.
        PermissionDenied: a port is reserved for others, a folder belongs to somebody else.
        Unavailable: there is no such interface, or a folder cannot be created.
        OSError: the system has no memory, or no descriptors.
    """
    with ExitStack() as held:
        claims = claim_all(config.addresses)
        held.callback(claims.close)
        run_dir = run_dir_at(config.folders.run, claims.http.port)
        for folder in (config.folders.cache, config.folders.state, run_dir):
            own_folder(folder)
        held.callback(os.close, _reserve(run_dir))
        held.callback(_clear, run_dir, config)
        inboxes = []
        for _ in range(config.workers):
            inbox = Inbox(*socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            for end in (held.enter_context(inbox.taken_from), held.enter_context(inbox.put_into)):
                end.setblocking(False)
            inboxes.append(inbox)
        yield Estate(
            claims=claims,
            epochs=SharedWords.create(MODEL_SLOTS),
            balance=SharedWords.create(BalanceLayout(config.workers).words),
            inboxes=tuple(inboxes),
            run_dir=run_dir,
        )


def _reserve(run_dir: Path) -> int:
    """Keep other servers out of the run folder for as long as the descriptor is open.

    Raises:
        Conflict: another server is in it.
        OSError: it cannot be opened.
    """
    folder = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(folder)
        raise Conflict(
            f"{run_dir}: another server keeps its ready file there: choose another with --run-dir"
        ) from None
    except OSError:
        pass  # a file system without locks: it is left to those who set it up
    return folder


def _clear(run_dir: Path, config: ServeConfig) -> None:
    """Take away what a supervisor that was killed has left."""
    remove_ready(run_dir / "ready.json")
    if config.ready_file is not None:
        remove_ready(config.ready_file)
    if run_dir != config.folders.run:  # named after the port: nobody else's
        with suppress(OSError):
            run_dir.rmdir()
