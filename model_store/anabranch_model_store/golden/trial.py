"""A version served to nobody: requests go through a session group as they do in a worker."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.store_trials import TrialStore
from anabranch_runtime.backends import load_backend
from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.models import DenseModel
from anabranch_runtime.observing import DropReason, RestartReason, ShedReason
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings
from anabranch_runtime.spans import Spans
from anabranch_wire.errors import Internal, Unavailable
from anabranch_wire.snapshots import Snapshot

__all__ = ["GoldenTrial", "TriedModel", "open_trial"]

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 600.0
_COSTS: Final = (BatchCost(1, 0.001),)
"""Not measured: nothing here is fast or slow."""

Array = NDArray[np.generic]


class TriedModel(Protocol):
    """What is tried; a `PreparedVersion` is one."""

    @property
    def snapshot(self) -> Snapshot:
        """What it is."""
        ...

    @property
    def model(self) -> DenseModel:
        """What a backend builds."""
        ...

    @property
    def user_inputs(self) -> tuple[str, ...]:
        """Inputs and features that may be sent once."""
        ...

    @property
    def examples(self) -> Sequence[Mapping[str, Array]]:
        """Requests that it computes."""
        ...


class GoldenTrial:
    """Scores rows with a version; `open_trial` makes it. For one thread."""

    def __init__(self, served: ServedVersion) -> None:
        self._served = served

    def score(
        self, arrays: Mapping[str, Array], heads: Sequence[str]
    ) -> tuple[dict[str, Array], int]:
        """Return outputs by name, and the rows that they are of.

        Args:
            arrays: input name -> array, for `InputRules.order`.
            heads: names of outputs.

        Raises:
            AnabranchError: the version does not take the inputs, or cannot compute them.
        """
        served = self._served
        inputs, rows = served.rules.order(arrays)
        outputs = tuple(served.output_index[head] for head in heads)
        deadline = time.monotonic() + _TIMEOUT_S
        sink = _Sink()
        ticket = Ticket(ScoreRequest(inputs, rows, outputs, deadline), served, sink)
        served.group.submit(ticket)
        if not sink.done.wait(_TIMEOUT_S):
            raise Unavailable(f"no answer within {_TIMEOUT_S:.0f} s")
        if ticket.error is not None:
            raise ticket.error
        if ticket.outputs is None:
            raise Internal("a ticket came back without outputs")
        return dict(zip(heads, ticket.outputs, strict=True)), rows


@contextmanager
def open_trial(
    tried: TriedModel, segment: Path | None, backend: str, runs: Sequence[Path] = ()
) -> Iterator[GoldenTrial]:
    """Load a version into a session group of one executor.

    Args:
        tried: the version.
        segment: with its rows; None where it looks none up.
        backend: name of the backend that serves it.
        runs: what deltas make of its rows.

    Raises:
        AnabranchError: it cannot be built, or the segment does not fit.
        OSError: there is no memory to be had.
    """
    store = None if segment is None else TrialStore(segment, runs)
    settings = GroupSettings(
        batching=BatchSettings(split_rows=0),
        queue=QueueSettings(default_timeout_s=_TIMEOUT_S, max_timeout_s=_TIMEOUT_S),
    )
    group = SessionGroup(str(tried.snapshot.model), settings, load_backend(backend), _Observer())
    try:
        yield GoldenTrial(
            group.load(
                tried.snapshot,
                tried.model,
                tried.examples,
                warm_rounds=0,
                user_inputs=tried.user_inputs,
                costs=_COSTS,
                store=None if store is None else store.view,
            )
        )
    finally:
        if not group.close(_TIMEOUT_S):
            _log.warning("a trial of golden requests did not end", extra={"event": "golden_trial"})


class _Sink:
    """Waits for one ticket."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def deliver(self, tickets: list[Ticket]) -> None:
        self.done.set()


class _Observer:
    """Counts nothing."""

    def __init__(self) -> None:
        self.spans = Spans()

    def batch(self, executor: int, version: int, rows: int, requests: int, busy_s: float) -> None:
        pass

    def shed(self, reason: ShedReason) -> None:
        pass

    def dropped(self, reason: DropReason) -> None:
        pass

    def executor_restarted(self, reason: RestartReason) -> None:
        pass
