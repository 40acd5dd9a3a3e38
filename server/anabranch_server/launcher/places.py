"""A process that is to be there: the one that runs, and what is known of those before it."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from anabranch_server.processes.boot import Role
from anabranch_server.processes.channel import Channel
from anabranch_server.processes.messages import FromSupervisor
from anabranch_server.processes.spawning import Child

__all__ = ["End", "Place", "Running"]


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended.

    Attributes:
        code: its exit code; None where a signal ended it.
        signal: that signal; None where it exited.
        life_s: how long it has lived.
    """

    code: int | None
    signal: int | None
    life_s: float

    @property
    def is_failure(self) -> bool:
        """Whether it gave up by itself, as opposed to being killed."""
        return self.code is not None and self.code != 0


@dataclass(slots=True)
class Running:
    """A running process, which this object owns.

    Attributes:
        child: the process.
        channel: to it; None for a loader.
        started: when, seconds since 1970.
        began_s: when, on the monotonic clock.
        kill_at_s: when it is killed, on the monotonic clock; None for never.
    """

    child: Child
    channel: Channel[FromSupervisor] | None
    started: float
    began_s: float
    kill_at_s: float | None = None

    def kill(self) -> None:
        """Send SIGKILL; the end shows at the pidfd."""
        self.kill_at_s = None
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.child.pidfd, signal.SIGKILL)

    def kill_by(self, when_s: float) -> None:
        """Send SIGKILL at that time, or earlier where that was said before."""
        self.kill_at_s = when_s if self.kill_at_s is None else min(when_s, self.kill_at_s)

    def reap(self) -> End:
        """Wait until it has ended, and return how. Its pidfd still has to be given up."""
        ended = os.waitid(os.P_PIDFD, self.child.pidfd, os.WEXITED)
        assert ended is not None, "that is for calls that do not wait"
        exited = ended.si_code == os.CLD_EXITED
        return End(
            code=ended.si_status if exited else None,
            signal=None if exited else ended.si_status,
            life_s=time.monotonic() - self.began_s,
        )


@dataclass(slots=True)
class Place:
    """A process that is to be there.

    Attributes:
        role: what it is.
        index: number of a worker; of a loader, 0 for versions and 1 for deltas.
        incarnation: of the newest process, 0 before the first.
        gives_way: whether the next one begins as work that gives way to requests.
        ends: ends in a row of processes that did not live long.
        running: the process that runs.
        start_at_s: when the next one is started, on the monotonic clock.
    """

    role: Role
    index: int = 0
    incarnation: int = 0
    gives_way: bool = False
    ends: int = 0
    running: Running | None = None
    start_at_s: float | None = None

    def __str__(self) -> str:
        if self.role == "worker":
            return f"worker {self.index}"
        return "delta loader" if self.role == "loader" and self.index else self.role
