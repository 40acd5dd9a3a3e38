"""X8: one session that all executors of a group share, against a session for each executor.

A session is what ONNX Runtime makes of a graph: with weights laid out for its kernels, so as many
sessions hold as many copies of the weights. In-process, closed loop, as many requests in flight as
keep every executor at work; both kinds alternate.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

import rows as results
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.protocol import Binding, DenseBackend, Engine
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.observing import DropReason, RestartReason, ShedReason
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings
from anabranch_runtime.spans import Spans
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec
from ctr_mlp import COLUMNS, INPUT, OUTPUT, make_rows, write

_IN_FLIGHT: Final = 4
"""Requests for each executor."""


def main() -> None:
    """Measure, print one table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--memory", choices=tuple(_BACKENDS), help=argparse.SUPPRESS)
    parser.add_argument("--graph", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory is not None:
        print(_bytes_of_load(options.graph, options.memory))
        return
    rounds, seconds = (1, 0.2) if options.quick else (results.ROUNDS, 1.0)
    with tempfile.TemporaryDirectory() as scratch:
        graph = write(Path(scratch), [1]).graph
        measured = list(_rows(graph, rounds, seconds))
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def _rows(graph: Path, rounds: int, seconds: float) -> Iterator[results.Row]:
    executors = len(os.sched_getaffinity(0))
    shared_bytes, own_bytes = (_fresh_bytes(graph, kind) for kind in ("shared", "own"))
    with_one = _load(graph, executors, OrtCpuBackend())
    with_own = _load(graph, executors, OwnSessionsBackend())
    for rows in (1, 64):
        shared: list[float] = []
        own: list[float] = []
        for _ in range(rounds):
            shared.append(_rate(with_one, executors, rows, seconds))
            own.append(_rate(with_own, executors, rows, seconds))
        yield results.measured(
            "X8",
            f"CTR MLP in-process, N={rows}, {executors} executors: requests/s with a session for "
            "each executor against one for all",
            [one / base for one, base in zip(own, shared, strict=True)],
            yardstick=f"one session, {median(shared):,.0f} requests/s",
            figures={
                "requests/s": median(own),
                "MB more": (own_bytes - shared_bytes) / 1e6,
            },
            distributions=("anabranch", "onnxruntime", "numpy"),
        )
    with_one.group.close()
    with_own.group.close()


class OwnSessionsBackend:
    """ONNX Runtime with a session for each binding."""

    name = "own-sessions"

    def build(self, model: DenseModel, cancellation: Cancellation | None = None) -> Engine:
        """Build nothing yet."""
        return _OwnSessions(model)


class _OwnSessions:
    def __init__(self, model: DenseModel) -> None:
        self._model = model
        self._engines: list[Engine] = []

    def bind(self) -> Binding:
        engine = OrtCpuBackend().build(self._model)
        self._engines.append(engine)
        return engine.bind()

    def close(self) -> None:
        for engine in self._engines:
            engine.close()


class Uncounted:
    """A group observer that keeps nothing."""

    def __init__(self) -> None:
        self.spans = Spans()

    def batch(self, executor: int, version: int, rows: int, requests: int, busy_s: float) -> None:
        """Forget it."""

    def shed(self, reason: ShedReason) -> None:
        """Forget it."""

    def dropped(self, reason: DropReason) -> None:
        """Forget it."""

    def executor_restarted(self, reason: RestartReason) -> None:
        """Forget it."""


class _Loop:
    """Sends each ticket again as it comes back, until it is told to stop."""

    def __init__(self, in_flight: int) -> None:
        self.answers = 0
        self.is_over = False
        self.ended = threading.Semaphore(0)
        self.in_flight = in_flight

    def deliver(self, tickets: list[Ticket]) -> None:
        """Count answers and ask again."""
        self.answers += len(tickets)
        for ticket in tickets:
            if self.is_over:
                self.ended.release()
            else:
                ticket.version.group.submit(Ticket(ticket.request, ticket.version, self))


_BACKENDS: Final[Mapping[str, Callable[[], DenseBackend]]] = {
    "shared": OrtCpuBackend,
    "own": OwnSessionsBackend,
}


def _fresh_bytes(graph: Path, kind: str) -> int:
    """Memory of a process that has loaded the graph and nothing else."""
    told = (sys.executable, __file__, "--memory", kind, "--graph", str(graph))
    return int(subprocess.run(told, check=True, capture_output=True, text=True).stdout)


def _bytes_of_load(graph: Path, kind: str) -> int:
    served = _load(graph, len(os.sched_getaffinity(0)), _BACKENDS[kind]())
    taken = _resident_bytes()
    served.group.close()
    return taken


def _load(graph: Path, executors: int, backend: DenseBackend) -> ServedVersion:
    """The graph in a group of its own, unmerged."""
    model = DenseModel(
        graph,
        (TensorSpec(INPUT, "FP32", (-1, COLUMNS)),),
        (TensorSpec(OUTPUT, "FP32", (-1, 1)),),
        RowLayout(True, 1, (0,), (0,)),
    )
    settings = GroupSettings(executors, BatchSettings(merge=False, split_rows=0))
    group = SessionGroup("ctr", settings, backend, Uncounted())
    examples = [{INPUT: make_rows(rows)} for rows in (1, 64)]
    return group.load(Snapshot("ctr", 1), model, examples)


def _rate(served: ServedVersion, executors: int, rows: int, seconds: float) -> float:
    """Requests a second."""
    loop = _Loop(executors * _IN_FLIGHT)
    x = np.ascontiguousarray(make_rows(rows))
    request = ScoreRequest((x,), rows, (), time.monotonic() + 3600.0)
    for _ in range(loop.in_flight):
        served.group.submit(Ticket(request, served, loop))
    time.sleep(seconds / 5)
    first, begin = loop.answers, time.monotonic()
    time.sleep(seconds)
    rate = (loop.answers - first) / (time.monotonic() - begin)
    loop.is_over = True
    for _ in range(loop.in_flight):
        loop.ended.acquire()
    return rate


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
