"""Actions that people asked for: at work, and the last ones that ended. Belongs to the loop."""

import asyncio
import itertools
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from anabranch_server.administration import Action, OperationState, OperationView
from anabranch_server.processes.loader_messages import Progress
from anabranch_wire.errors import AnabranchError, NotFound

__all__ = ["Operation", "Operations"]

_KEPT: Final = 1000
_STRIDE: Final = 1_000_000
"""Ids of one supervisor; the next one counts on beyond them."""


class Operation:
    """One action. Whoever carries it out advances it; anybody may look and wait.

    Attributes:
        id: names it, as `op-000123`.
        action: what was asked for.
        model: model it is about.
    """

    def __init__(self, identity: str, action: Action, model: str) -> None:
        self.id = identity
        self.action: Action = action
        self.model = model
        self._started = time.time()
        self._ended: float | None = None
        self._state: OperationState = "RUNNING"
        self._phase: str | None = None
        self._bytes_done = 0
        self._bytes_total = 0
        self._error: str | None = None
        self._over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._over.is_set()

    def advance(self, progress: Progress) -> None:
        """Say how far it is."""
        self._phase = progress.phase
        self._bytes_done, self._bytes_total = progress.bytes_done, progress.bytes_total

    def enter(self, phase: str) -> None:
        """Say what begins."""
        self._phase, self._bytes_done, self._bytes_total = phase, 0, 0

    def finish(self, error: AnabranchError | None = None) -> None:
        """End it: DONE, or FAILED with the reason. Later calls are ignored."""
        self._end("DONE" if error is None else "FAILED", None if error is None else error.message)

    def cancel(self) -> None:
        """End it because the server stops, or its model is gone."""
        self._end("CANCELLED", "the server stopped, or the model went, before it was done")

    async def wait(self, seconds: float) -> None:
        """Wait for its end, but no longer than `seconds`; 0 does not wait."""
        if seconds <= 0 or self.is_over:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass

    def view(self) -> OperationView:
        """Return how it stands."""
        is_known = self._bytes_total > 0
        return OperationView(
            id=self.id,
            action=self.action,
            model=self.model,
            state=self._state,
            phase=None if self.is_over else self._phase,
            progress=self._bytes_done / self._bytes_total if is_known else None,
            bytes_done=self._bytes_done,
            bytes_total=self._bytes_total,
            started=self._started,
            ended=self._ended,
            error=self._error,
        )

    def _end(self, state: OperationState, error: str | None) -> None:
        if self.is_over:
            return
        self._state, self._error, self._ended = state, error, time.time()
        self._over.set()


class Operations:
    """All actions since the start, the oldest forgotten.

    Args:
        kept: how many are remembered; those at work always are.
        incarnation: of the supervisor, from 1. Each has ids of its own: whoever follows an action
            of an earlier one must not be told of another.
    """

    def __init__(self, kept: int = _KEPT, incarnation: int = 1) -> None:
        self._kept = kept
        self._first = (incarnation - 1) * _STRIDE + 1
        self._numbers = itertools.count(self._first)
        self._operations: OrderedDict[str, Operation] = OrderedDict()

    def begin(self, action: Action, model: str) -> Operation:
        """Return a new action, RUNNING."""
        operation = Operation(f"op-{next(self._numbers):06}", action, model)
        self._operations[operation.id] = operation
        self._forget()
        return operation

    def view(self, identity: str) -> OperationView:
        """Return an action.

        Raises:
            NotFound: none of that id, or it is long over.
        """
        operation = self._operations.get(identity)
        if operation is None:
            shown = f"operation {identity[:40]!r}"
            if self._is_of_another(identity):
                raise NotFound(
                    f"{shown} was of a supervisor that has been replaced since; what it had not "
                    "finished was given up: look at the model instead"
                )
            raise NotFound(f"{shown} is not known; the last {self._kept} are remembered")
        return operation.view()

    def views(self) -> Sequence[OperationView]:
        """Return all that are remembered, newest first."""
        return [operation.view() for operation in reversed(self._operations.values())]

    def _is_of_another(self, identity: str) -> bool:
        """Whether an earlier supervisor of this server may have given out that id."""
        digits = identity.removeprefix("op-")
        is_id = identity.startswith("op-") and digits.isascii() and digits.isdigit()
        return is_id and len(digits) < 20 and 0 < int(digits) < self._first

    def _forget(self) -> None:
        for identity, operation in list(self._operations.items()):
            if len(self._operations) <= self._kept:
                return
            if operation.is_over:
                del self._operations[identity]
