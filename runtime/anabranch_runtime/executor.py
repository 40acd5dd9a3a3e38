"""One executor: a thread, its bindings, and the loop that takes, stages, runs and delivers."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, Stage
from anabranch_runtime.observing import GroupObserver
from anabranch_runtime.requests import ReplySink, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import AnabranchError, Internal, Unavailable

__all__ = ["Executor", "deliver"]

_log = logging.getLogger(__name__)


class Executor:
    """Computes batches on a thread of its own until `take` has no more.

    Attributes:
        index: position in its group.
        wake: a held lock; releasing it tells the sleeping executor to look for work again.
        given: part of a cut request that is for this executor alone; guarded by the group.
        computing: requests in the batch at work; set by the group as it gives them, 0 once they are
            finished.
    """

    def __init__(
        self,
        name: str,
        index: int,
        take: Callable[["Executor"], list[Ticket] | None],
        observer: GroupObserver,
    ) -> None:
        self.index = index
        self.wake = threading.Lock()
        self.wake.acquire()
        self.given: Ticket | None = None
        self.computing = 0
        self._take = take
        self._observer = observer
        self._bindings: Mapping[ServedVersion, Binding] = {}
        self._thread = threading.Thread(target=self._work, name=f"{name}-e{index}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has ended; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def attach(self, version: ServedVersion, binding: Binding) -> None:
        """Give the executor its binding of `version`, before the first ticket that names it."""
        self._bindings = {**self._bindings, version: binding}

    def detach(self, version: ServedVersion) -> Binding | None:
        """Take the binding of `version` away, after its last ticket."""
        bindings = dict(self._bindings)
        binding = bindings.pop(version, None)
        self._bindings = bindings
        return binding

    def _work(self) -> None:
        while (batch := self._take(self)) is not None:
            if not batch:
                continue
            started = time.monotonic()
            rows = _rows_of(batch)
            self._answer(batch, rows, started)
            busy = time.monotonic() - started
            version = batch[0].version.snapshot.version
            self._observer.batch(self.index, version, rows, len(batch), busy)
            self.computing = 0
            deliver(batch)
            del batch  # whoever sleeps keeps no request alive

    def _answer(self, batch: list[Ticket], rows: int, started: float) -> None:
        """Give every ticket its outputs or its error.

        A batch that fails is halved until only those fail that are at fault: one among n requests
        costs 2 log n further runs, where running each alone would cost n.
        """
        try:
            self._compute(batch, rows, started)
        except Exception as error:  # the loop's edge: an executor never dies of a batch
            if len(batch) == 1:
                _fail(batch[0], error, started)
                return
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                self._answer(half, _rows_of(half), started)

    def _compute(self, batch: list[Ticket], rows: int, started: float) -> None:
        """Stage, run, and copy each ticket's answer out of staging."""
        version = batch[0].version
        binding = self._bindings.get(version)
        if binding is None:
            raise Unavailable(f"version {version.snapshot} is no longer loaded")
        run_rows = max(rows, version.fewest_rows) + version.company_rows
        alone = len(batch) == 1 and run_rows == rows
        if alone:
            stage = _stage_alone(binding, batch[0].request.inputs)
        else:
            stage = _stage_together(binding, batch, rows, run_rows)
        stage.enqueue()
        outputs = stage.outputs()
        if not alone:
            _check_rows(version, outputs, run_rows)
        finished = time.monotonic()
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
    except Exception:  # the loop's edge: one door's fault must not silence an executor for all
        _log.exception("answers could not be delivered", extra={"event": "delivery_error"})


def _rows_of(batch: list[Ticket]) -> int:
    return batch[0].request.rows if len(batch) == 1 else sum([t.request.rows for t in batch])


def _stage_alone(binding: Binding, inputs: tuple[NDArray[np.generic], ...]) -> Stage:
    """Stage one request as it came."""
    stage = binding.stage(tuple([array.shape for array in inputs]))
    for staged, array in zip(stage.inputs, inputs, strict=True):
        staged[...] = array
    return stage


def _stage_together(binding: Binding, batch: list[Ticket], rows: int, run_rows: int) -> Stage:
    """Stage the `rows` rows of `batch` one below the other, with company padded to `run_rows`.

    Inputs without rows are those of the first request.
    """
    first = batch[0].request.inputs
    version = batch[0].version
    axes = version.model.rows.input_axes
    company = version.company
    stage = binding.stage(
        tuple(
            [
                array.shape if axis is None else (run_rows, *array.shape[1:])
                for array, axis in zip(first, axes, strict=True)
            ]
        )
    )
    for index, (staged, axis) in enumerate(zip(stage.inputs, axes, strict=True)):
        if axis is None:
            staged[...] = first[index]
        else:
            arrays = [ticket.request.inputs[index] for ticket in batch]
            if company is not None:
                arrays.append(company[index])
            _fill(staged, arrays)
    return stage


def _fill(staged: NDArray[np.generic], arrays: list[NDArray[np.generic]]) -> None:
    """Copy `arrays` one below the other into `staged`; repeat the last row, if any, to its end."""
    rows = sum([len(array) for array in arrays])
    np.concatenate(arrays, out=staged[:rows])
    if len(staged) > rows:
        nothing = b"" if staged.dtype == np.object_ else 0
        staged[rows:] = staged[rows - 1] if rows else nothing


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
