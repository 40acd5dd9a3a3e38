"""How each process of a server is started: what it is told, and which descriptors it gets.

Invariant: whatever is made for a start is either in a running process, or returned, or closed.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from anabranch_server.config import ServeConfig
from anabranch_server.launcher.estate import Estate
from anabranch_server.ports import Claim, listener_beside
from anabranch_server.processes.boot import Boot, ListenAddress, Role
from anabranch_server.processes.channel import pair
from anabranch_server.processes.priorities import give_way
from anabranch_server.processes.spawning import Child, spawn
from anabranch_server.ready import seconds_since_start

__all__ = ["Programs", "Started", "Starter"]


@dataclass(frozen=True, slots=True)
class Programs:
    """Which module each process runs."""

    supervisor: str = "anabranch_server.supervisor"
    worker: str = "anabranch_server.worker"
    loader: str = "anabranch_server.loader"


@dataclass(frozen=True, slots=True)
class Started:
    """A started process; all of it belongs to whoever started it.

    Attributes:
        child: the process.
        to_it: the launcher's end of its channel; None for a loader.
        to_supervisor: the end of its channel that the supervisor gets; None for that itself.
    """

    child: Child
    to_it: socket.socket | None
    to_supervisor: socket.socket | None


class Starter:
    """Starts processes; knows nothing of those that run already. One thread.

    Args:
        config: what they are told.
        estate: what they share.
        programs: what they run.
    """

    def __init__(self, config: ServeConfig, estate: Estate, programs: Programs) -> None:
        self._config = config
        self._estate = estate
        self._programs = programs
        self._launch = os.urandom(8).hex()
        self._launched = time.clock_gettime(time.CLOCK_BOOTTIME) - seconds_since_start()
        claims = estate.claims
        self._addresses = {
            "http": _address(claims.http),
            "grpc": _address(claims.grpc),
            "metrics": _address(claims.metrics),
            "admin": _address(claims.admin),
            "admin_grpc": _address(claims.admin_grpc),
        }

    def supervisor(self, incarnation: int) -> Started:
        """Start a supervisor.

        Raises:
            OSError: the system has no room for it.
            Conflict: a port has been taken although it is held; Unavailable: its interface is gone.
        """
        estate = self._estate
        with ExitStack() as given, _channel() as (to_it, its_end):
            # Bound anew each time: what listens is closed by whoever listened.
            metrics = given.enter_context(listener_beside(estate.claims.metrics))
            admin = given.enter_context(listener_beside(estate.claims.admin))
            balance = estate.balance.reader_fd()
            given.callback(os.close, balance)
            descriptors = {
                "launcher": its_end.fileno(),
                "epochs": estate.epochs.fd,
                "balance": balance,
                "metrics": metrics.fileno(),
                "admin": admin.fileno(),
            }
            boot = self._boot("supervisor", 0, incarnation)
            child = spawn(self._programs.supervisor, boot, descriptors)
        return Started(child, to_it, None)

    def worker(self, index: int, incarnation: int) -> Started:
        """Start a worker.

        Raises:
            OSError: the system has no room for it.
        """
        estate = self._estate
        with (
            ExitStack() as given,
            _channel() as (to_it, its_end),
            _channel() as (to_supervisor, its_supervisor),
        ):
            epochs = estate.epochs.reader_fd()
            given.callback(os.close, epochs)
            descriptors = {
                "launcher": its_end.fileno(),
                "supervisor": its_supervisor.fileno(),
                "epochs": epochs,
                "balance": estate.balance.fd,
                "inbox": estate.inboxes[index].taken_from.fileno(),
            }
            for sibling, inbox in enumerate(estate.inboxes):
                if sibling != index:
                    descriptors[f"outbox{sibling}"] = inbox.put_into.fileno()
            boot = self._boot("worker", index, incarnation)
            child = spawn(self._programs.worker, boot, descriptors)
        return Started(child, to_it, to_supervisor)

    def loader(self, index: int, incarnation: int, *, gives_way: bool = False) -> Started:
        """Start a loader; `index` is 0 for versions, and 1 for deltas.

        One that gives way does so before it reads its first module: it has no way back up.

        Raises:
            OSError: the system has no room for it.
        """
        with _channel() as (to_supervisor, its_end):
            boot = self._boot("loader", index, incarnation)
            child = spawn(self._programs.loader, boot, {"supervisor": its_end.fileno()})
            if gives_way:
                with suppress(ProcessLookupError):
                    give_way(child.pid)
        return Started(child, None, to_supervisor)

    def _boot(self, role: Role, index: int, incarnation: int) -> Boot:
        return Boot(
            role=role,
            launch=self._launch,
            launcher_pid=os.getpid(),
            launcher_started=self._launched,
            config=self._config,
            addresses=self._addresses,
            descriptors={},
            run_dir=str(self._estate.run_dir),
            index=index,
            incarnation=incarnation,
        )


@contextmanager
def _channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a channel; the second is for the process and closed here in any case."""
    ours, theirs = pair()
    with theirs:
        try:
            yield ours, theirs
        except BaseException:
            ours.close()
            raise


def _address(claim: Claim) -> ListenAddress:
    return ListenAddress(claim.host, claim.port)
