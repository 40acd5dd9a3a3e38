"""A thread that ends though it should not takes nobody with it."""

import threading
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from anabranch_runtime.settings import BatchSettings
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import (
    Collector,
    Counts,
    MakeGroup,
    load_version,
    ticket_of,
    until_asleep,
)
from anabranch_wire.errors import Unavailable

ONE = np.ones((1, 4), np.float32)


def test_the_thread_is_replaced_and_its_batch_answered(
    make_group: MakeGroup,
    backend: GatedBackend,
    counts: Counts,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    group = make_group(2)
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)
    backend.fault = SystemExit("a library called exit")

    lost = [ticket_of(served, sink, ONE) for _ in range(20)]
    for ticket in lost:
        group.submit(ticket)
    sink.wait(20)
    until_asleep(group)
    backend.fault = None
    good = [ticket_of(served, sink, ONE) for _ in range(20)]
    for ticket in good:
        group.submit(ticket)
    sink.wait(40)

    assert all(isinstance(ticket.error, Unavailable) for ticket in lost)
    assert all(ticket.error is None for ticket in good)
    assert counts.restart_reasons
    assert set(counts.restart_reasons) == {"fault"}
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events == ["executor_died"] * len(counts.restart_reasons)
    assert group.in_flight() == 0
    replaced = [thread for thread in threading.enumerate() if thread.name in ("m-e0", "m-e1")]
    assert group.close(10.0)
    for thread in replaced:
        thread.join(10)
        assert not thread.is_alive()


def test_an_executor_goes_on_where_there_is_no_memory_for_another_binding(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = make_group(1)
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()

    def bind(engine: object) -> NoReturn:
        raise MemoryError

    (engine,) = group._engines._engines.values()
    monkeypatch.setattr(type(engine), "bind", bind)
    backend.fault = SystemExit()
    group.submit(ticket_of(served, sink, ONE))
    sink.wait(1)
    until_asleep(group)
    backend.fault = None

    group.submit(ticket_of(served, sink, ONE))

    assert sink.wait(2)[1].error is None


def test_a_lost_part_fails_the_whole_request(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(3, BatchSettings(max_rows=16, split_rows=4))
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    until_asleep(group)
    backend.fault = SystemExit()

    group.submit(ticket_of(served, sink, np.ones((12, 4), np.float32)))
    (lost,) = sink.wait(1)
    until_asleep(group)
    backend.fault = None
    group.submit(ticket_of(served, sink, np.ones((12, 4), np.float32)))
    _, good = sink.wait(2)

    assert isinstance(lost.error, Unavailable)
    assert good.error is None
    assert counts.restart_reasons == ["fault"] * 3
