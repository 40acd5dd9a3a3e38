"""Everything the processes of a server say to each other: one msgpack message a packet.

Each channel is a SOCK_SEQPACKET pair (`channel.py`); descriptors that belong to a message travel
beside it, in the order its docstring names them. There is no commit message: a prepared epoch is
current from the moment the shared word of its model says so.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from anabranch_runtime.spans import Recorded
from anabranch_server.processes.loader_messages import ToLoader
from anabranch_server.processes.message import Message
from anabranch_server.processes.plans import DESCRIPTORS_EACH, StatePlan

__all__ = [
    "Abort",
    "Ack",
    "Attached",
    "CannotPrepare",
    "Drain",
    "FromLauncher",
    "FromSupervisor",
    "FromWorker",
    "HeldModel",
    "Hello",
    "Joined",
    "LoaderAttached",
    "NewSupervisor",
    "Opened",
    "Ping",
    "Pong",
    "Prepare",
    "Purpose",
    "Refreshed",
    "Released",
    "Serving",
    "SetLog",
    "StartLoader",
    "Stats",
    "Trace",
    "Traced",
]


# --- launcher -> supervisor, launcher -> worker -------------------------------------------------


class Attached(Message, frozen=True):
    """A worker was started. Descriptors: control channel to it, its pidfd.

    Attributes:
        index: number of the worker.
        incarnation: rises with every start of a worker of that index, from 1.
        pid: its process.
        started: seconds since 1970.
    """

    index: int
    incarnation: int
    pid: int
    started: float

    @property
    def descriptors(self) -> int:
        """See `Message`."""
        return 2


Purpose = Literal["versions", "deltas"]
"""What a loader is for: there is one for each, so that small news does not wait for large."""


class LoaderAttached(Message, frozen=True):
    """The loader that was asked for was started. Descriptors: channel to it, its pidfd.

    Attributes:
        pid: its process.
        purpose: as it was asked for.
    """

    pid: int
    purpose: Purpose

    @property
    def descriptors(self) -> int:
        """See `Message`."""
        return 2


class NewSupervisor(Message, frozen=True):
    """To a worker: another supervisor was started. Descriptor: control channel to it."""

    @property
    def descriptors(self) -> int:
        """See `Message`."""
        return 1


class Drain(Message, frozen=True):
    """To all: stop taking new callers, finish, leave with exit code 0."""


# --- supervisor -> launcher ---------------------------------------------------------------------


class StartLoader(Message, frozen=True):
    """Start a loader, answered by `LoaderAttached`; one that runs for that purpose is killed.

    Attributes:
        purpose: what it is to look at.
        gives_way: whether it begins, imports and all, as work that gives way to requests.
    """

    purpose: Purpose
    gives_way: bool = False


# --- supervisor -> worker -----------------------------------------------------------------------


class Prepare(Message, frozen=True):
    """Make ready what a model serves from `epoch` on; answered by `Ack` or `CannotPrepare`.

    What the worker has already (same group, same version, same identity) it keeps. Serves for new
    epochs, and with the current epoch for a worker that joins. Descriptors: for each generation of
    the state, in its order, the segment that it lies over and its memory.

    Attributes:
        model: model name.
        slot: index of the model's shared word.
        epoch: number of the state.
        state: what to serve; None when the model is gone from the repository.
        urgent: build at normal priority, since nothing is served meanwhile.
    """

    model: str
    slot: int
    epoch: int
    state: StatePlan | None
    urgent: bool = False

    @property
    def descriptors(self) -> int:
        """See `Message`."""
        return 0 if self.state is None else DESCRIPTORS_EACH * len(self.state.generations)


class Abort(Message, frozen=True):
    """Forget a prepared epoch that will never be current."""

    model: str
    epoch: int


class Joined(Message, frozen=True):
    """Everything that is current was prepared: open the doors."""


class Serving(Message, frozen=True):
    """The first look at the repository is over: readiness is what the models say.

    Attributes:
        has_been_ready: whether the server was ready once; then no model turns that off any more.
    """

    has_been_ready: bool = False


class Ping(Message, frozen=True):
    """Answered by `Pong` from the event loop; who does not answer is taken for hung."""

    number: int


class Stats(Message, frozen=True):
    """Bring the gauges of the counters page up to date; answered by `Refreshed`."""

    number: int


class Trace(Message, frozen=True):
    """Write down for some seconds what takes how long; answered by `Traced` when they are over.

    Attributes:
        number: names the request; a further one takes its place.
        seconds: how long.
    """

    number: int
    seconds: float


class SetLog(Message, frozen=True):
    """Change what is logged; None leaves it."""

    level: str | None = None
    access: bool | None = None


# --- worker -> supervisor -----------------------------------------------------------------------


class HeldModel(msgspec.Struct, frozen=True):
    """What a worker has of one model.

    Attributes:
        slot: index of its shared word.
        epochs: prepared epochs, rising.
        state: of the epoch that is current; None where it has none.
    """

    slot: int
    epochs: tuple[int, ...]
    state: StatePlan | None


class Hello(Message, frozen=True):
    """First message of a worker to a supervisor. Descriptor: its counters page.

    Attributes:
        index: number of the worker.
        incarnation: as `Attached` says it.
        pid: its process.
        is_open: whether its doors are open.
        models: what it has already; empty after its start.
    """

    index: int
    incarnation: int
    pid: int
    is_open: bool
    models: Mapping[str, HeldModel]

    @property
    def descriptors(self) -> int:
        """See `Message`."""
        return 1


class Opened(Message, frozen=True):
    """The doors are open; follows `Joined`."""


class Ack(Message, frozen=True):
    """`epoch` is prepared."""

    model: str
    epoch: int
    incarnation: int


class CannotPrepare(Message, frozen=True):
    """`epoch` cannot be prepared, and was forgotten.

    Attributes:
        kind: class name of the error tree, such as `InvalidInput`.
        error: its message.
    """

    model: str
    epoch: int
    kind: str
    error: str


class Released(Message, frozen=True):
    """No request of this worker reads an epoch of the model older than `epoch` any more."""

    model: str
    epoch: int


class Pong(Message, frozen=True):
    """The event loop is alive."""

    number: int


class Refreshed(Message, frozen=True):
    """The gauges are up to date."""

    number: int


class Traced(Message, frozen=True):
    """What was written down."""

    number: int
    recorded: Recorded


FromLauncher = Attached | LoaderAttached | NewSupervisor | Drain
FromSupervisor = (
    StartLoader | Prepare | Abort | Joined | Serving | Ping | Stats | Trace | SetLog | ToLoader
)
FromWorker = Hello | Opened | Ack | CannotPrepare | Released | Pong | Refreshed | Traced
