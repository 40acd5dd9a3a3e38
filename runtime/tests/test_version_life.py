"""Who has a version keeps it; the last one to let go frees what it ran on."""

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.catalog import ServingState
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import lookup_model, scale_model
from anabranch_testing.groups import (
    Collector,
    Counts,
    MakeGroup,
    load_version,
    ticket_of,
    until_asleep,
)
from anabranch_wire.errors import AnabranchError, Overloaded

ROW = np.ones((1, 4), np.float32)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A server that idles collects no cycles: nothing may depend on it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.usefixtures("no_collector")
def test_a_request_in_flight_keeps_its_version(backend: GatedBackend, tmp_path: Path) -> None:
    unused = threading.Event()
    group = SessionGroup(
        "m",
        GroupSettings(1, BatchSettings(max_rows=4, split_rows=0)),
        backend,
        Counts(),
        unused.set,
    )
    served = load_version(group, scale_model(tmp_path))
    watched = weakref.ref(served)
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, ROW))
    assert backend.entered.acquire(timeout=10)

    del served
    assert not unused.is_set()
    assert group.free_unused() == 0
    backend.gate.set()
    (done,) = sink.wait(1)
    assert done.error is None
    until_asleep(group)
    del done
    sink.tickets.clear()

    assert unused.wait(10)
    assert watched() is None
    assert group.free_unused() == 1
    assert group.free_unused() == 0
    assert group.close(10.0)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("ids", "deadline_s"),
    [([1], 30.0), ([99], 30.0), ([1], -1.0), (list(range(5)) * 8, 30.0)],
    ids=["answered", "failed", "expired", "cut"],
)
def test_executors_that_sleep_keep_no_version(
    make_group: MakeGroup, tmp_path: Path, ids: list[int], deadline_s: float
) -> None:
    group = make_group(3, BatchSettings(max_rows=8, split_rows=8))
    served = load_version(group, lookup_model(tmp_path))
    watched = weakref.ref(served)
    sink = Collector()
    until_asleep(group)
    for _ in range(3):
        group.submit(ticket_of(served, sink, np.array(ids, np.int64), deadline_s=deadline_s))
    sink.wait(3)
    until_asleep(group)

    sink.tickets.clear()
    del served

    assert watched() is None
    assert group.free_unused() == 1


@pytest.mark.usefixtures("no_collector")
def test_a_refusal_keeps_no_version(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group(queue=QueueSettings(max_requests=1))
    served = load_version(group, scale_model(tmp_path))
    watched = weakref.ref(served)
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, ROW))
    assert backend.entered.acquire(timeout=10)
    group.submit(ticket_of(served, sink, ROW))
    with suppress(Overloaded):
        group.submit(ticket_of(served, sink, ROW))
        pytest.fail("it was taken")
    backend.gate.set()
    sink.wait(2)
    until_asleep(group)

    sink.tickets.clear()
    del served

    assert watched() is None


def test_versions_come_and_go_under_load(tmp_path: Path) -> None:
    """The short form of a thousand reloads: nothing is lost, nothing grows."""
    model = scale_model(tmp_path)
    settings = GroupSettings(2, BatchSettings(max_rows=8, split_rows=4), QueueSettings(64))
    group = SessionGroup("m", settings, OrtCpuBackend(), Counts())
    catalog = OwnCatalog()
    catalog.publish("m", ServingState({0: load_version(group, model, 0)}, default=0))
    ended = threading.Event()
    faults: list[object] = []
    answers = [0, 0]

    def ask(client: int) -> None:
        try:
            while not ended.is_set():
                sink = Collector()
                try:
                    group.submit(
                        ticket_of(catalog.resolve("m"), sink, np.ones((12, 4), np.float32))
                    )
                except AnabranchError as error:
                    faults.append(error)
                    return
                (done,) = sink.wait(1)
                sink.tickets.clear()
                if done.error is not None:
                    faults.append(done.error)
                answers[client] += 1
        except BaseException as fault:
            faults.append(fault)

    clients = [threading.Thread(target=ask, args=(client,)) for client in range(2)]
    for client in clients:
        client.start()
    freed = 0
    sizes: list[int] = []
    for number in range(1, 121):
        catalog.publish(
            "m", ServingState({number: load_version(group, model, number)}, default=number)
        )
        freed += group.free_unused()
        if number % 40 == 0:
            sizes.append(resident_bytes())
    threads = threading.active_count()
    ended.set()
    for client in clients:
        client.join()
    until_asleep(group)
    catalog.publish("m", None)
    freed += group.free_unused()

    assert faults == []
    assert min(answers) > 0
    assert freed == 121
    assert threads == threading.active_count() + 2
    assert sizes[-1] - sizes[0] < 16 << 20, sizes
    assert group.close(10.0)
