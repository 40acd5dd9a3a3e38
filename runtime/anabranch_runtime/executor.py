"""One executor: a thread, its bindings, and the loop that takes, stages, runs and delivers."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding
from anabranch_runtime.cpu import pin_thread
from anabranch_runtime.cut_engines import CutBinding
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_batch, stage_request
from anabranch_runtime.executor_lookups import ExecutorLookups
from anabranch_runtime.observing import GroupObserver
from anabranch_runtime.pacing import Pace
from anabranch_runtime.requests import ReplySink, Ticket
from anabranch_runtime.row_source import RowSource
from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import AnabranchError, Internal, Unavailable

__all__ = ["Executor", "deliver"]

_log = logging.getLogger(__name__)

_DIED: Final = {"event": "executor_died"}


class Executor:
    """Computes batches on a thread of its own until `take` has no more.

    Args:
        name: of its model.
        index: position in its group.
        take: returns the next batch, empty to ask again, None to end.
        observer: told of batches.
        cpus: processors that the thread keeps to; None leaves that to the system.
        on_fault: told when the thread ends though it should not, as its last act.

    Attributes:
        index: position in its group.
        wake: a held lock; releasing it tells the sleeping executor to look for work again.
        given: part of a cut request that is for this executor alone; guarded by the group.
        computing: requests in the batch at work; set by the group as it gives them, 0 once they are
            finished.
        at_work: the batch at work until it is answered.
        until: `time.monotonic()` at which it will be free, as far as that is known; 0.0 while it
            sleeps; guarded by the group.
        begun: `time.monotonic()` at which it was given its batch; guarded by the group.
        lookups: of its batches, and what they counted.
        report: pace and rows of a batch that the group has not looked at yet; it took from `begun`
            until the executor asks for the next.
    """

    def __init__(
        self,
        name: str,
        index: int,
        take: Callable[["Executor"], list[Ticket] | None],
        observer: GroupObserver,
        cpus: frozenset[int] | None,
        on_fault: Callable[["Executor"], None],
    ) -> None:
        self.index = index
        self.given: Ticket | None = None
        self.computing = 0
        self.at_work: list[Ticket] | None = None
        self.until = 0.0
        self.begun = 0.0
        self.report: tuple[Pace, int] | None = None
        self.lookups = ExecutorLookups()
        self._name = f"{name}-e{index}"
        self._take = take
        self._observer = observer
        self._spans = observer.spans
        self._cpus = cpus
        self._on_fault = on_fault
        self._bindings: Mapping[int, Binding] = {}

    def start(self) -> None:
        """Start the thread, also after it ended."""
        self.wake = threading.Lock()
        self.wake.acquire()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def join(self, timeout_s: float = 0.0) -> bool:
        """Wait until the thread has ended; whether it has."""
        end_s = time.monotonic() + timeout_s
        while (thread := self._thread).is_alive():
            thread.join(max(0.0, end_s - time.monotonic()))
            if thread.is_alive():
                return False
        return True

    def attach(self, token: int, binding: Binding) -> None:
        """Give the executor its binding of an engine, before the first ticket that needs it."""
        self._bindings = {**self._bindings, token: binding}
        if isinstance(binding, CutBinding):
            self.lookups.keep(token, binding)

    def detach(self, token: int) -> Binding | None:
        """Take the binding of an engine away, after the last ticket that needs it."""
        bindings = dict(self._bindings)
        binding = bindings.pop(token, None)
        self._bindings = bindings
        self.lookups.forget(token)
        return binding

    def begin(self, batch: list[Ticket], now: float) -> None:
        """Note what the executor is given at `now`; the group's lock is held."""
        self.computing = len(batch)
        self.begun = now
        if batch:
            self.until = now + batch[0].version.pace.run_s(_rows_of(batch))
        else:
            self.until = 0.0

    def _run(self) -> None:
        try:
            if self._cpus is not None:
                pin_thread(self._cpus)
            self._work()
        except BaseException as fault:  # the thread's edge: what ends it must not end its executor
            _log.error("executor %s died", self._name, exc_info=fault, extra=_DIED)
            fault.__traceback__ = None  # its frames hold the batch
            self._on_fault(self)

    def _work(self) -> None:
        while (batch := self._take(self)) is not None:
            if not batch:
                continue
            self.at_work = batch
            started = time.monotonic()
            rows = _rows_of(batch)
            is_whole = self._answer(batch, rows, started)
            busy = time.monotonic() - started
            version = batch[0].version
            self._observer.batch(self.index, version.snapshot.version, rows, len(batch), busy)
            if is_whole:
                self.report = (version.pace, rows)
            self.computing = 0
            self.at_work = None
            deliver(batch)
            if self._spans.is_on:
                self._trace(version, len(batch), rows, started, started + busy)
            del batch, version  # whoever sleeps keeps no request and no version alive

    def _trace(
        self, version: ServedVersion, requests: int, rows: int, started: float, answered: float
    ) -> None:
        """Write down a batch that is delivered; its stages have been before."""
        ended = time.monotonic()
        snapshot = version.snapshot
        about: dict[str, str | int] = {
            "model": snapshot.model,
            "version": snapshot.version,
            "requests": requests,
            "rows": rows,
        }
        self._spans.add("deliver", answered, ended, {})
        self._spans.add("batch", started, ended, about)

    def _answer(self, batch: list[Ticket], rows: int, started: float) -> bool:
        """Give every ticket its outputs or its error; whether one run was enough.

        A batch that fails is halved until only those fail that are at fault: one among n requests
        costs 2 log n further runs, where running each alone would cost n.
        """
        try:
            self._compute(batch, rows, started)
        except Exception as error:  # the loop's edge: an executor never dies of a batch
            if len(batch) == 1:
                _fail(batch[0], error, started)
                return False
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                self._answer(half, _rows_of(half), started)
            return False
        return True

    def _compute(self, batch: list[Ticket], rows: int, started: float) -> None:
        """Stage, run, and copy each ticket's answer out of staging."""
        version = batch[0].version
        binding = self._bindings.get(version.token)
        if binding is None:
            raise Unavailable(f"version {version.snapshot} is no longer loaded")
        run_rows = max(rows, version.fewest_rows) + version.company_rows
        alone = len(batch) == 1 and run_rows == rows
        is_traced = self._spans.is_on
        begun = time.monotonic() if is_traced else 0.0
        lookup_s = 0.0
        source = version.source
        if isinstance(source, RowSource):
            stage, lookup, looked_up = self.lookups.stage(version, binding, batch, rows, run_rows)
            lookup_s = looked_up - lookup
            if is_traced:
                self._spans.add("lookup", lookup, looked_up, {"rows": rows})
        elif alone:
            stage = stage_request(binding, batch[0].request.inputs, rows)
        else:
            requests = [(ticket.request.inputs, ticket.request.rows) for ticket in batch]
            axes = version.model.rows.input_axes
            stage = stage_batch(binding, requests, axes, run_rows, version.company)
        if isinstance(source, CutSource) and isinstance(stage, CutStage):
            lookup = time.monotonic()
            stage.look_up(source)
            looked_up = time.monotonic()
            lookup_s = looked_up - lookup
            if is_traced:
                self._spans.add("lookup", lookup, looked_up, {"rows": rows})
        staged = time.monotonic() if is_traced else 0.0
        stage.enqueue()
        outputs = stage.outputs()
        if not alone:
            _check_rows(version, outputs, run_rows)
        finished = time.monotonic()
        if is_traced:
            self._spans.add("stage", begun, staged, {"rows": run_rows})
            self._spans.add("run", staged, finished, {"rows": run_rows})
        # An output that is asked for leaves staging once: a batch's answers are views of that copy.
        kept: dict[int, NDArray[np.generic]] = {}
        every = range(len(outputs))
        begin = 0
        for ticket in batch:
            request = ticket.request
            end = begin + request.rows
            answer: list[NDArray[np.generic]] = []
            for index in request.outputs or every:
                array = kept.get(index)
                if array is None:
                    array = kept[index] = outputs[index].copy()
                answer.append(array if alone else array[begin:end])
            ticket.outputs = tuple(answer)
            ticket.started = started
            ticket.finished = finished
            ticket.lookup_s = lookup_s
            ticket.batch_rows = rows
            begin = end


def deliver(tickets: list[Ticket]) -> None:
    """Hand finished tickets to their sinks, one call per sink."""
    sink = tickets[0].sink
    if all([ticket.sink is sink for ticket in tickets]):
        _hand_over(sink, tickets)
        return
    groups: dict[int, tuple[ReplySink, list[Ticket]]] = {}
    for ticket in tickets:
        groups.setdefault(id(ticket.sink), (ticket.sink, []))[1].append(ticket)
    for one, members in groups.values():
        _hand_over(one, members)


def _hand_over(sink: ReplySink, tickets: list[Ticket]) -> None:
    try:
        sink.deliver(tickets)
    except BaseException:  # the loop's edge: one door's fault must not silence an executor for all
        _log.exception("answers could not be delivered", extra={"event": "delivery_error"})


def _rows_of(batch: list[Ticket]) -> int:
    return batch[0].request.rows if len(batch) == 1 else sum([t.request.rows for t in batch])


def _check_rows(version: ServedVersion, outputs: Sequence[NDArray[np.generic]], rows: int) -> None:
    for spec, array in zip(version.outputs, outputs, strict=True):
        if array.ndim == 0 or len(array) != rows:
            raise Internal(
                f"output {spec.name!r} has shape {array.shape} for a batch of {rows} rows"
            )


def _fail(ticket: Ticket, error: Exception, started: float) -> None:
    if not isinstance(error, AnabranchError):
        _log.error("executor failed on a batch", exc_info=error, extra={"event": "executor_error"})
        error = Internal("the executor failed")
    # Frames of a traceback hold the ticket, which holds the error: in that circle the request would
    # live on until the collector comes.
    error.__traceback__ = error.__cause__ = error.__context__ = None
    ticket.error = error
    ticket.outputs = None
    ticket.started = started
    ticket.finished = time.monotonic()
    ticket.batch_rows = ticket.request.rows
