"""A real worker process whose launcher and supervisor is the test."""

import os
import select
import signal
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec
import numpy as np
import onnx

from anabranch_runtime.counters import CountersReader, Series
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.ports import Claim, claim
from anabranch_server.processes.board import MODEL_SLOTS, BalanceLayout
from anabranch_server.processes.boot import Boot, ListenAddress
from anabranch_server.processes.channel import Channel, pair
from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Ack,
    FromWorker,
    Hello,
    Joined,
    NewSupervisor,
    Prepare,
    Refreshed,
    Serving,
    Stats,
)
from anabranch_server.processes.plans import (
    ArrayPlan,
    GroupPlan,
    QueuePlan,
    RowPlan,
    StatePlan,
    TensorPlan,
    VersionPlan,
)
from anabranch_server.processes.spawning import Child, spawn
from anabranch_server.settings import read_settings, serve_config
from anabranch_testing.graphs import write_graph

__all__ = [
    "GROUP",
    "QUEUE",
    "RunningWorker",
    "ScoredBy",
    "scale_plan",
    "started_worker",
    "state_of",
]

M = TypeVar("M", bound=Message)

GROUP = GroupPlan("ort-cpu", 2, "least_loaded", (), True, 16, 0.0, 0)
QUEUE = QueuePlan(1024, 65_536, 5.0, 60.0, 2)


def scale_plan(
    folder: Path,
    number: int,
    *,
    factor: float | None = None,
    delta: int = 0,
    model: str = "m",
    rounds: int = 1,
    padding: int = 0,
) -> VersionPlan:
    """Write a graph y = x * factor, where x and y are [N, 1] FP32, and return its plan.

    Args:
        folder: where to write it, in a folder of its own.
        number: its version.
        factor: the version's number when None, so that an answer says what computed it.
        delta: newest applied delta.
        model: model name.
        rounds: how often it computes that; a million take about a second.
        padding: bytes of further weights, which change nothing.
    """
    value = float(number if factor is None else factor)
    path = write_graph(
        folder / f"{model}-{number}-{delta}",
        "scale (float[N, 1] x) => (float[N, 1] y) "
        f"<float[1, 1] w = {{{value}}}, int64 n = {{{rounds}}}, bool yes = {{1}}> {{"
        " y = Loop(n, yes, x) <body = again (int64 i, bool c, float[N, 1] z)"
        " => (bool d, float[N, 1] u) { d = Identity(c) u = MatMul(x, w) }> }",
    )
    if padding:
        _pad(path, value, padding)
    example = {"x": ArrayPlan("FP32", (2, 1), np.ones((2, 1), np.float32).tobytes())}
    return VersionPlan(
        model=model,
        version=number,
        delta=delta,
        identity=f"{value}",
        path=str(path),
        inputs=(TensorPlan("x", "FP32", (-1, 1)),),
        outputs=(TensorPlan("y", "FP32", (-1, 1)),),
        rows=RowPlan(True, 1, (0,), (0,), "", True),
        user_inputs=(),
        description="",
        examples=(example,),
        warm_rounds=1,
        weight_bytes=4,
    )


def state_of(
    *versions: VersionPlan,
    served: Sequence[int] | None = None,
    default: int | None = None,
    group: GroupPlan = GROUP,
    queue: QueuePlan = QUEUE,
) -> StatePlan:
    """Return a state that serves all of `versions`, by default the newest."""
    numbers = tuple(version.version for version in versions) if served is None else tuple(served)
    newest = max(numbers, default=None)
    return StatePlan(
        group, queue, versions, numbers, default=newest if default is None else default
    )


def _pad(path: Path, factor: float, padding: int) -> None:
    """Let the graph at `path` compute the same by way of so many bytes of weights."""
    width = round((padding / 4) ** 0.5)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> scale (float[N, 1] x) => (float[N, 1] y)'
        "{ h = MatMul(x, a) g = MatMul(h, m) y = MatMul(g, b) }"
    )
    for name, weights in (
        ("a", np.full((1, width), 1 / width, np.float32)),
        ("m", np.eye(width, dtype=np.float32)),
        ("b", np.full((width, 1), factor, np.float32)),
    ):
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.save(model, path)


@dataclass(frozen=True)
class ScoredBy:
    """An answer to a request that scores 1.0.

    Attributes:
        version: as the answer names it.
        score: what it says.
    """

    version: str
    score: float


class RunningWorker:
    """A worker process, and the ends of its channels that its launcher and supervisor have.

    Attributes:
        child: the process.
        words: the epoch words.
        launcher: the launcher's end.
        supervisor: the supervisor's end; replaced by `new_supervisor`.
        http: where HTTP is answered once the worker has joined.
        grpc: the same for gRPC.
        log: its standard output and error.
    """

    def __init__(
        self, child: Child, words: SharedWords, http: Claim, grpc: Claim, log: Path
    ) -> None:
        self.child = child
        self.log = log
        self.words = words
        self.http = str(http)
        self.grpc = str(grpc)
        self.launcher: Channel[Message]
        self.supervisor: Channel[FromWorker]
        self.socket: socket.socket
        self._heard: list[FromWorker] = []
        self._exited: int | None = None
        self._page_fd = -1

    # --- talking --------------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        """Send a message as the supervisor."""
        self.supervisor.send(message)

    def hear(self, kind: type[M], timeout_s: float = 30.0) -> M:
        """Return the next message of this kind; those of other kinds wait for their turn."""
        end_s = time.monotonic() + timeout_s
        while True:
            for index, message in enumerate(self._heard):
                if isinstance(message, kind):
                    del self._heard[index]
                    return message
            left_s = max(0.0, end_s - time.monotonic())
            if not self._read(left_s):
                raise AssertionError(f"no {kind.__name__} in {timeout_s} s; heard {self._heard}")

    def has_said(self, kind: type[Message]) -> bool:
        """Whether a message of this kind has come by now."""
        while self._read(0.0):
            pass
        return any(isinstance(message, kind) for message in self._heard)

    def _read(self, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return False
        received = self.supervisor.receive()
        if received is None:
            raise AssertionError(f"the worker closed its channel; heard {self._heard}")
        for fd in received.fds:
            self._page_fd = self._kept(fd)
        self._heard.append(received.message)
        return True

    def _kept(self, fd: int) -> int:
        """Keep the counters page that came with a Hello in place of an earlier one."""
        if self._page_fd >= 0:
            os.close(self._page_fd)
        return fd

    def gauge(self, name: str) -> float:
        """Return a value of the page, brought up to date; of the first series of that name."""
        self.say(Stats(1))
        self.hear(Refreshed)
        return next(series.values[0] for series in self.series() if series.name == name)

    def forget_page(self) -> None:
        """Close the counters page."""
        self._page_fd = self._kept(-1)

    def series(self) -> list[Series]:
        """Read the counters page."""
        return CountersReader(self._page_fd).read()

    def new_supervisor(self) -> Hello:
        """Replace the supervisor, and return what the worker says to it."""
        ours, theirs = pair()
        self.launcher.send(NewSupervisor(), [theirs.fileno()])
        theirs.close()
        self.supervisor.close()
        self.take_supervisor(ours)
        return self.hear(Hello)

    def take_supervisor(self, ours: socket.socket) -> None:
        """Talk through another channel from now on."""
        self.socket = ours
        self.supervisor = Channel(ours, FromWorker)
        self._heard.clear()

    # --- serving --------------------------------------------------------------------------------

    def prepare(
        self,
        epoch: int,
        state: StatePlan | None,
        *,
        model: str = "m",
        slot: int = 0,
        urgent: bool = False,
    ) -> None:
        """Ask for a state and wait until it is prepared."""
        self.say(Prepare(model, slot, epoch, state, urgent))
        ack = self.hear(Ack)
        assert (ack.model, ack.epoch, ack.incarnation) == (model, epoch, 1)

    def switch(
        self, epoch: int, state: StatePlan | None, *, model: str = "m", slot: int = 0
    ) -> None:
        """Prepare a state and make it current."""
        self.prepare(epoch, state, model=model, slot=slot)
        self.words.store(slot, epoch)

    def join(self) -> None:
        """Let the worker open its doors, and wait for them."""
        self.say(Joined())
        self.say(Serving())
        end_s = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(f"http://{self.http}/v2/health/live", timeout=10).close()
                return
            except OSError:
                assert time.monotonic() < end_s, "the doors did not open"
                assert self.exit_code(0.02) is None, "the worker has ended"

    def is_ready(self) -> bool:
        """Ask the probe."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/v2/health/ready", timeout=10) as got:
                return bool(got.status == 200)
        except urllib.error.HTTPError:
            return False

    def score(self, model: str = "m", version: str = "") -> ScoredBy:
        """Score one row of 1.0 on a connection of its own.

        Raises:
            urllib.error.HTTPError: it was refused.
        """
        place = f"versions/{version}/" if version else ""
        head = msgspec.json.encode(
            {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": [1, 1],
                        "parameters": {"binary_data_size": 4},
                    }
                ]
            }
        )
        request = urllib.request.Request(
            f"http://{self.http}/v2/models/{model}/{place}infer",
            head + struct.pack("<f", 1.0),
            {
                "Inference-Header-Content-Length": str(len(head)),
                "Content-Type": "application/octet-stream",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as got:
            answer = msgspec.json.decode(got.read())
        return ScoredBy(answer["model_version"], answer["outputs"][0]["data"][0])

    # --- ending ---------------------------------------------------------------------------------

    def kill(self, number: signal.Signals) -> None:
        """Send a signal."""
        signal.pidfd_send_signal(self.child.pidfd, number)

    def exit_code(self, timeout_s: float = 30.0) -> int | None:
        """Wait for the end: the exit code, -N for signal N, None when it is still running."""
        if self._exited is None:
            poll = select.poll()
            poll.register(self.child.pidfd, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return None
            ended = os.waitid(os.P_PIDFD, self.child.pidfd, os.WEXITED)
            assert ended is not None
            code = ended.si_status
            self._exited = code if ended.si_code == os.CLD_EXITED else -code
        return self._exited

    def policies(self) -> set[int]:
        """Scheduling policies that its threads have."""
        found = set()
        for thread in os.listdir(f"/proc/{self.child.pid}/task"):
            with suppress(ProcessLookupError):  # it has ended
                found.add(os.sched_getscheduler(int(thread)))
        return found

    def figures(self) -> tuple[int, int, int]:
        """Descriptors, threads, and resident bytes of the process."""
        proc = Path(f"/proc/{self.child.pid}")
        status = dict(
            line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line
        )
        return (
            len(os.listdir(proc / "fd")),
            int(status["Threads"]),
            int(status["VmRSS"].split()[0]) * 1024,
        )


@contextmanager
def started_worker(
    folder: Path,
    *options: str,
    grpc_host: str | None = None,
    given: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[RunningWorker]:
    """Start a worker that has said Hello, on free loopback ports, until the block ends.

    Args:
        folder: for the configuration's folders.
        options: more settings, as `drain_s=0.5`.
        grpc_host: interface that it is told to listen on for gRPC, in place of the claimed one.
        given: descriptors in place of its own, by name.
    """
    flags: dict[str, object] = {
        "host": "127.0.0.1",
        "drain_s": 0.2,
        "workers": 1,
        "run_dir": str(folder / "run"),
        "state_dir": str(folder / "state"),
        "cache_dir": str(folder / "cache"),
    }
    flags |= dict(option.split("=", 1) for option in options)
    config = serve_config(read_settings(flags, {}, None), str(folder), cores=1)
    layout = BalanceLayout(1)
    words, balance = SharedWords.create(MODEL_SLOTS), SharedWords.create(layout.words)
    http, grpc = claim("127.0.0.1", 0, "HTTP"), claim("127.0.0.1", 0, "gRPC")
    inbox, sibling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    launcher, its_launcher = pair()
    supervisor, its_supervisor = pair()
    reader = words.reader_fd()
    boot = Boot(
        "worker",
        "0" * 16,
        os.getpid(),
        0.0,
        config,
        {
            "http": ListenAddress(http.host, http.port),
            "grpc": ListenAddress(grpc_host or grpc.host, grpc.port),
        },
        {},
        str(folder / "run"),
    )
    log = folder / "worker.log"
    descriptors = {
        "launcher": its_launcher.fileno(),
        "supervisor": its_supervisor.fileno(),
        "epochs": reader,
        "balance": balance.fd,
        "inbox": inbox.fileno(),
        **given,
    }
    with _output_to(log):
        child = spawn("anabranch_server.worker", boot, descriptors)
    os.close(reader)
    its_launcher.close()
    its_supervisor.close()
    worker = RunningWorker(child, words, http, grpc, log)
    worker.launcher = Channel(launcher, Message)
    worker.take_supervisor(supervisor)
    try:
        yield worker
    finally:
        if worker.exit_code(0) is None:
            worker.kill(signal.SIGKILL)
            worker.exit_code()
        os.close(child.pidfd)
        worker.forget_page()
        worker.launcher.close()
        worker.supervisor.close()
        for one in (http.held, grpc.held, inbox, sibling):
            one.close()


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Let processes that are started in this block write to a file."""
    kept = [os.dup(fd) for fd in (1, 2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for fd in (1, 2):
            os.dup2(file, fd)
        yield
    finally:
        for fd, own in zip((1, 2), kept, strict=True):
            os.dup2(own, fd)
            os.close(own)
        os.close(file)
