"""Who is refused, who makes room, and what they are told."""

import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, QueueSettings
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, Counts, MakeGroup, load_version, ticket_of
from anabranch_wire.errors import DeadlineExceeded, Overloaded

SLOW = BatchSettings(merge=False, split_rows=0)


def ones(rows: int = 1) -> NDArray[np.float32]:
    return np.ones((rows, 4), np.float32)


def teach(served: ServedVersion, seconds: float) -> None:
    """Let the group believe that a batch of one row takes so long, from now on."""
    served.pace.observe(1, seconds, time.monotonic())


def occupied(
    group: SessionGroup, served: ServedVersion, backend: GatedBackend, sink: Collector
) -> None:
    """Return when the only executor is at work until the gate is opened."""
    backend.hold()
    group.submit(ticket_of(served, sink, ones()))
    assert backend.entered.acquire(timeout=10)


def test_a_request_that_would_be_late_is_refused_with_the_time_to_come_back(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(batching=SLOW)
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    teach(served, 10.0)
    occupied(group, served, backend, sink)

    with pytest.raises(Overloaded) as refused:
        group.submit(ticket_of(served, sink, ones(), deadline_s=15.0))
    group.submit(ticket_of(served, sink, ones(), deadline_s=60.0))
    with pytest.raises(Overloaded) as refused_again:
        group.submit(ticket_of(served, sink, ones(), deadline_s=25.0))
    backend.gate.set()
    sink.wait(2)

    assert counts.shed_reasons == ["estimated_wait", "estimated_wait"]
    assert 5.0 < refused.value.retry_after_s <= 10.0  # however long the machine took since
    assert 15.0 < refused_again.value.retry_after_s <= 20.0
    assert "it would be too late: 1 requests of 1 rows wait" in refused_again.value.message


def test_a_request_that_has_no_time_left_is_not_computed(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(batching=SLOW)
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    occupied(group, served, backend, sink)
    hasty = ticket_of(served, sink, ones(), deadline_s=20.0)
    group.submit(hasty)
    for _ in range(300):
        teach(served, 60.0)
    before = backend.computed
    backend.gate.set()
    sink.wait(2)

    assert isinstance(hasty.error, DeadlineExceeded)
    assert "too little time was left" in hasty.error.message
    assert counts.drop_reasons == ["expired"]
    assert backend.computed - before == 1


def test_priority_displaces_the_newest_of_the_lowest_level(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(queue=QueueSettings(max_requests=3, priority_levels=3))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    occupied(group, served, backend, sink)
    low_old = ticket_of(served, sink, ones(), priority=3)
    middle = ticket_of(served, sink, ones(), priority=2)
    low_new = ticket_of(served, sink, ones())
    for ticket in (low_old, middle, low_new):
        group.submit(ticket)

    high = [ticket_of(served, sink, ones(), priority=1) for _ in range(3)]
    for ticket in high:
        group.submit(ticket)
    with pytest.raises(Overloaded):
        group.submit(ticket_of(served, sink, ones(), priority=1))
    backend.gate.set()
    done = sink.wait(7)

    assert done[:3] == [low_new, low_old, middle]
    assert all(isinstance(ticket.error, Overloaded) for ticket in done[:3])
    assert all(ticket.error is None for ticket in done[3:])
    assert counts.shed_reasons == ["priority"] * 3 + ["queue_full"]


def test_nobody_is_displaced_for_what_would_not_fit_all_the_same(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(queue=QueueSettings(max_rows=10))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    occupied(group, served, backend, sink)
    group.submit(ticket_of(served, sink, ones(5), priority=1))
    for _ in range(5):
        group.submit(ticket_of(served, sink, ones()))

    with pytest.raises(Overloaded):
        group.submit(ticket_of(served, sink, ones(6), priority=1))
    assert group.queue_depth() == (6, 10)
    group.submit(ticket_of(served, sink, ones(3), priority=1))
    assert group.queue_depth() == (4, 10)
    backend.gate.set()
    sink.wait(8)

    assert counts.shed_reasons == ["queue_full", "priority", "priority", "priority"]


def test_low_priority_does_not_make_high_priority_late(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group(batching=SLOW)
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    teach(served, 5.0)
    occupied(group, served, backend, sink)
    for _ in range(4):
        group.submit(ticket_of(served, sink, ones(), deadline_s=60.0))

    high = ticket_of(served, sink, ones(), deadline_s=20.0, priority=1)
    group.submit(high)
    with pytest.raises(Overloaded):
        group.submit(ticket_of(served, sink, ones(), deadline_s=20.0))
    backend.gate.set()

    assert sink.wait(6)[1] is high


def test_bounds_can_be_changed_while_requests_wait(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(queue=QueueSettings(max_requests=3, priority_levels=1))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    occupied(group, served, backend, sink)
    for _ in range(3):
        group.submit(ticket_of(served, sink, ones(3)))

    group.set_queue(QueueSettings(max_requests=1, default_timeout_s=3.0))
    assert group.settings.queue.default_timeout_s == 3.0
    assert group.queue_depth() == (3, 9)
    with pytest.raises(Overloaded):
        group.submit(ticket_of(served, sink, ones()))
    group.set_queue(QueueSettings(max_requests=4))
    group.submit(ticket_of(served, sink, ones(), priority=1))
    backend.gate.set()
    done = sink.wait(5)

    assert all(ticket.error is None for ticket in done)
    assert counts.shed_reasons == ["queue_full"]
