"""Twice the load that there is capacity for, short deadlines: what is computed must be in time."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.requests import Ticket
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings, Select
from anabranch_testing.gated import TimedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, Counts, load_version, ticket_of
from anabranch_wire.errors import Overloaded

SECONDS = 1.5
TIMEOUT_S = 0.05
BATCH_S = 0.004


@contextmanager
def open_group(
    backend: TimedBackend, executors: int, max_rows: int, queued: int, select: Select
) -> Iterator[SessionGroup]:
    settings = GroupSettings(
        executors,
        BatchSettings(max_rows=max_rows, split_rows=0),
        QueueSettings(max_requests=queued),
        select,
    )
    group = SessionGroup("m", settings, backend, Counts())
    try:
        yield group
    finally:
        assert group.close(10.0)


def is_in_time(ticket: Ticket) -> bool:
    return ticket.error is None and ticket.finished <= ticket.request.deadline


def test_sixty_clients_of_one_executor(tmp_path: Path) -> None:
    """First come, first served without a look at the time got 33 of 486 done in time."""
    backend = TimedBackend(batch_s=BATCH_S)
    with open_group(backend, 1, 8, 32, "least_loaded") as group:
        served = load_version(group, scale_model(tmp_path))
        x = np.zeros((64, 4), np.float32)
        in_time = [0] * 60
        before = backend.computed
        end_s = time.monotonic() + SECONDS

        def ask(client: int) -> None:
            while time.monotonic() < end_s:
                sink = Collector()
                try:
                    group.submit(ticket_of(served, sink, x, deadline_s=TIMEOUT_S))
                except Overloaded:
                    time.sleep(0.005)
                    continue
                in_time[client] += is_in_time(sink.wait(1)[0])

        threads = [threading.Thread(target=ask, args=(client,)) for client in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        computed = backend.computed - before

    assert sum(in_time) >= 0.8 * computed
    assert sum(in_time) >= 0.4 * SECONDS / BATCH_S


@pytest.mark.parametrize(
    ("executors", "max_rows", "select"),
    [(1, 1, "least_loaded"), (2, 1, "least_loaded"), (1, 4, "least_loaded"), (2, 1, "round_robin")],
)
def test_arrivals_at_twice_the_capacity(
    tmp_path: Path, executors: int, max_rows: int, select: Select
) -> None:
    backend = TimedBackend(batch_s=BATCH_S)
    capacity = executors * max_rows / BATCH_S
    with open_group(backend, executors, max_rows, 1000, select) as group:
        served = load_version(group, scale_model(tmp_path))
        x = np.zeros((1, 4), np.float32)
        sink = Collector()
        sent = refused = 0
        longest_s = 0.0
        begin = time.monotonic()
        while (passed_s := time.monotonic() - begin) < SECONDS:
            while sent < 2 * capacity * passed_s:
                sent += 1
                try:
                    group.submit(ticket_of(served, sink, x, deadline_s=TIMEOUT_S))
                except Overloaded as error:
                    longest_s = max(longest_s, error.retry_after_s)
                    refused += 1
            time.sleep(0.001)
        done = sink.wait(sent - refused)

    in_time = sum(map(is_in_time, done))
    computed = sum(ticket.error is None for ticket in done)
    assert in_time >= 0.8 * computed
    assert in_time >= 0.4 * SECONDS * capacity
    assert refused > 0
    assert 0.0 < longest_s < 1.0
