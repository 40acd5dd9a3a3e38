"""The executors of one model in one process, and the queue in front of them.

All versions of the model share the executors. A batch belongs to one version; which version a
request belongs to was decided when it was resolved and never changes.
"""

import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.backends.protocol import DenseBackend, Engine
from anabranch_runtime.executor import Executor, deliver
from anabranch_runtime.models import DenseModel
from anabranch_runtime.observing import GroupObserver
from anabranch_runtime.pending import PendingQueue
from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.settings import GroupSettings
from anabranch_runtime.splitting import split
from anabranch_runtime.warming import batch_plan, company_of, warm
from anabranch_wire.errors import Cancelled, DeadlineExceeded, Overloaded, Unavailable
from anabranch_wire.snapshots import Snapshot

__all__ = ["SessionGroup"]

Inputs = Mapping[str, NDArray[np.generic]]


class SessionGroup:
    """Takes tickets from any thread and returns them finished through their sinks.

    Invariants: a ticket accepted by `submit` reaches its sink exactly once; an executor sleeps
    only while nothing waits, or what waits may still fill a batch (`max_delay_s`).

    Attributes:
        model: model name.
        settings: as given.
    """

    def __init__(
        self,
        model: str,
        settings: GroupSettings,
        backend: DenseBackend,
        observer: GroupObserver,
    ) -> None:
        self.model = model
        self.settings = settings
        self._backend = backend
        self._observer = observer
        self._lock = threading.Lock()
        self._pending = PendingQueue(settings.queue.priority_levels)
        self._idle: list[Executor] = []
        self._closed = False
        self._engines: dict[ServedVersion, Engine] = {}
        self._executors = tuple(
            Executor(model, index, self._take, observer) for index in range(settings.executors)
        )
        for executor in self._executors:
            executor.start()

    # --- requests -------------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> None:
        """Queue `ticket`; its sink gets it back finished.

        Raises:
            Overloaded: the queue is full.
            Unavailable: the group is closing.
        """
        request = ticket.request
        ticket.submitted = time.monotonic()
        queue = self.settings.queue
        with self._lock:
            if self._closed:
                raise Unavailable(f"model {self.model!r} is being unloaded")
            pending = self._pending
            if pending.requests >= queue.max_requests or (
                pending.requests and pending.rows + request.rows > queue.max_rows
            ):
                self._observer.shed("queue_full")
                raise Overloaded(
                    f"model {self.model!r}: {pending.requests} requests of {pending.rows} rows wait"
                )
            idle = self._idle
            if not idle:
                pending.push(ticket)
                return
            parts = self._parts(ticket, len(idle))
            if parts > 1:
                self._hand_out(ticket, parts)
                return
            pending.push(ticket)
            executor = idle.pop()
        executor.wake.release()

    def queue_depth(self) -> tuple[int, int]:
        """Waiting requests and rows. Any thread."""
        with self._lock:
            return self._pending.requests, self._pending.rows

    def in_flight(self) -> int:
        """Requests taken and not yet finished; the parts of a cut one count each. Any thread."""
        with self._lock:
            at_work = [one.computing + (one.given is not None) for one in self._executors]
            return self._pending.requests + sum(at_work)

    # --- versions -------------------------------------------------------------------------------

    def load(
        self,
        snapshot: Snapshot,
        model: DenseModel,
        examples: Sequence[Inputs],
        *,
        warm_rounds: int = 5,
        description: str = "",
        user_inputs: tuple[str, ...] = (),
    ) -> ServedVersion:
        """Build, bind and warm a version beside traffic; nothing sees it before this returns.

        Args:
            snapshot: what it is.
            model: what to build.
            examples: requests that it can compute; used to warm every executor and to measure how
                many rows a batch should have. Without any, batches stay as small as is safe.
            warm_rounds: runs of each example on each executor.
            description: the modeller's words.
            user_inputs: inputs that may be sent once per request; each has its rows on axis 0.

        Raises:
            InvalidInput: the graph cannot be built or cannot compute an example.
        """
        rules = InputRules(
            model.inputs, model.rows.input_axes, user_inputs, self.settings.max_repeated_bytes
        )
        requests = [rules.order(example) for example in examples]
        engine = self._backend.build(model)
        bindings = [engine.bind() for _ in self._executors]
        try:
            for binding in bindings:
                warm(binding, requests, warm_rounds)
            plan = batch_plan(self.settings.batching, model.rows, bindings[0], requests)
        except BaseException:
            for binding in bindings:
                binding.close()
            engine.close()
            raise
        uniform = model.rows.can_merge and all(-1 not in spec.shape[1:] for spec in model.inputs)
        company, company_rows = company_of(model.rows, requests) if uniform else (None, 0)
        served = ServedVersion(
            snapshot=snapshot,
            model=model,
            rules=rules,
            output_index={spec.name: i for i, spec in enumerate(model.outputs)},
            group=self,
            description=description,
            user_inputs=user_inputs,
            mergeable=plan.mergeable,
            max_rows=plan.max_rows,
            fewest_rows=model.rows.min_rows if model.rows.can_pad else 0,
            uniform=uniform,
            split_rows=plan.split_rows,
            company=company,
            company_rows=company_rows,
        )
        self._engines[served] = engine
        for executor, binding in zip(self._executors, bindings, strict=True):
            executor.attach(served, binding)
        return served

    def close(self, timeout_s: float = 5.0) -> bool:
        """Refuse new tickets, compute what waits, end the executors, free the engines.

        Args:
            timeout_s: after this, what still waits is answered with Unavailable.

        Returns:
            Whether every executor ended in time.
        """
        with self._lock:
            self._closed = True
            sleeping, self._idle = self._idle, []
        for executor in sleeping:
            executor.wake.release()
        deadline = time.monotonic() + timeout_s
        ended = [
            executor.join(max(0.0, deadline - time.monotonic())) for executor in self._executors
        ]
        with self._lock:
            left = self._pending.drain()
        for ticket in left:
            ticket.error = Unavailable(f"model {self.model!r} was unloaded")
        if left:
            deliver(left)
        if all(ended):
            for served, engine in self._engines.items():
                for executor in self._executors:
                    binding = executor.detach(served)
                    if binding is not None:
                        binding.close()
                engine.close()
            self._engines.clear()
        return all(ended)

    # --- executors ------------------------------------------------------------------------------

    def _take(self, executor: Executor) -> list[Ticket] | None:
        """Next batch for `executor`; sleeps while nothing waits; None when the group is closed."""
        delay_s = self.settings.batching.max_delay_s
        while True:
            with self._lock:
                given, executor.given = executor.given, None
                if given is not None:
                    executor.computing = 1
                    self._wake_for_the_rest()
                    return [given]
                wait_s = self._pending.fill_time(delay_s, time.monotonic()) if delay_s else 0.0
                if wait_s <= 0.0 or self._closed:
                    batch, late = self._pending.take(time.monotonic())
                    executor.computing = len(batch)
                    if batch or late:
                        self._wake_for_the_rest()
                    elif self._closed:
                        return None
                    else:
                        wait_s = -1.0
                        self._idle.append(executor)
                else:
                    batch, late = [], []
                    self._idle.append(executor)
            if late:
                self._drop(late)
            if batch or late:
                return batch
            if not executor.wake.acquire(timeout=wait_s):
                with self._lock:
                    if executor in self._idle:
                        self._idle.remove(executor)
                        continue
                # A submitter took it off the idle list at that very moment.
                executor.wake.acquire()

    def _wake_for_the_rest(self) -> None:
        """Let another executor look after what a batch left behind; the lock is held.

        Without a delay there is no need: each ticket that finds executors asleep wakes one. With
        one, the executor that goes to work may have been the only one to watch the time.
        """
        if self._pending.requests and self._idle and self.settings.batching.max_delay_s:
            self._idle.pop().wake.release()

    def _drop(self, tickets: list[Ticket]) -> None:
        now = time.monotonic()
        for ticket in tickets:
            ticket.finished = now
            if ticket.cancelled:
                self._observer.dropped("cancelled")
                ticket.error = Cancelled("the caller left before the request was computed")
            else:
                self._observer.dropped("expired")
                ticket.error = DeadlineExceeded(
                    f"the deadline passed after {now - ticket.submitted:.3f} s in the queue"
                )
        deliver(tickets)

    def _hand_out(self, ticket: Ticket, parts: int) -> None:
        """Give each of `parts` idle executors its own part; through the queue they could merge."""
        for part in split(ticket, parts):
            part.submitted = ticket.submitted
            executor = self._idle.pop()
            executor.given = part
            executor.wake.release()

    def _parts(self, ticket: Ticket, idle: int) -> int:
        """How many idle executors `ticket` is cut over; 1 = it stays whole."""
        smallest = ticket.version.split_rows
        rows = ticket.request.rows
        if not smallest or idle < 2 or rows < 2 * smallest:
            return 1
        return min(idle, rows // smallest)
