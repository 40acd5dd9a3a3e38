"""One request cut over several executors, and its parts put together again."""

import threading
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.models import DenseModel
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_wire.errors import Internal

__all__ = ["cut", "split"]


def cut(rows: int, parts: int) -> list[int]:
    """Bounds of `parts` nearly equal parts of `rows` rows: first 0, last `rows`, rising."""
    return [rows * part // parts for part in range(parts + 1)]


def split(ticket: Ticket, parts: int) -> list[Ticket]:
    """Cut `ticket` into tickets of their own; the last one to finish completes it.

    The parts' inputs are views of the ticket's. Only for versions whose rows are independent,
    with the rows on axis 0 of every input that has them and of every output.
    """
    request = ticket.request
    bounds = cut(request.rows, parts)
    join = _Join(ticket, bounds)
    made: list[Ticket] = []
    pieces = _pieces(ticket.version.model, request.inputs, bounds)
    for inputs, (begin, end) in zip(pieces, pairwise(bounds), strict=True):
        part = ScoreRequest(
            inputs, end - begin, request.outputs, request.deadline, request.priority
        )
        made.append(_Part(part, ticket, join, begin))
    return made


def _pieces(
    model: DenseModel, inputs: tuple[NDArray[np.generic], ...], bounds: list[int]
) -> list[tuple[NDArray[np.generic], ...]]:
    axes = model.rows.input_axes
    if model.lookups is not None:
        return model.lookups.cut(inputs, axes, bounds)
    return [
        tuple(
            [
                array if axis is None else array[begin:end]
                for array, axis in zip(inputs, axes, strict=True)
            ]
        )
        for begin, end in pairwise(bounds)
    ]


class _Part(Ticket):
    """One part; it is cancelled when the whole is."""

    __slots__ = ("begin", "whole")

    def __init__(self, request: ScoreRequest, whole: Ticket, join: "_Join", begin: int) -> None:
        self.whole = whole
        self.begin = begin
        super().__init__(request, whole.version, join)

    @property
    def cancelled(self) -> bool:
        return self.whole.cancelled

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        if value:
            self.whole.cancelled = True


class _Join:
    """Sink of the parts of one request. Executors of several parts may deliver at once."""

    def __init__(self, whole: Ticket, bounds: list[int]) -> None:
        self._whole = whole
        self._rows = bounds[-1]
        self._missing = len(bounds) - 1
        self._outputs: tuple[NDArray[np.generic], ...] | None = None
        self._lock = threading.Lock()

    def deliver(self, tickets: list[Ticket]) -> None:
        """Take finished parts; the last completes the whole and sends it on."""
        whole = self._whole
        with self._lock:
            for part in tickets:
                assert isinstance(part, _Part)
                self._take(whole, part)
                self._missing -= 1
            done = self._missing == 0
        if done:
            if whole.error is None:
                whole.outputs = self._outputs
            whole.sink.deliver([whole])

    def _take(self, whole: Ticket, part: _Part) -> None:
        if part.started >= whole.started:
            whole.started = part.started
            whole.lookup_s = part.lookup_s  # of that batch: it is part of what follows its start
        whole.finished = max(whole.finished, part.finished)
        whole.batch_rows = max(whole.batch_rows, part.batch_rows)
        if part.outputs is None:
            whole.error = whole.error or part.error
            return
        rows = part.request.rows
        if self._outputs is None:
            self._outputs = tuple(
                [np.empty((self._rows, *array.shape[1:]), array.dtype) for array in part.outputs]
            )
        for joined, array in zip(self._outputs, part.outputs, strict=True):
            wanted = (rows, *joined.shape[1:])
            if array.shape != wanted:
                whole.error = whole.error or Internal(
                    f"a part of {rows} rows has an output of shape {array.shape}, not {wanted}"
                )
                return
            joined[part.begin : part.begin + rows] = array
