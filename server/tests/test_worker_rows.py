"""A real worker that looks rows up in generations which the test writes."""

import os
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from anabranch_runtime.store import Capacity, Segment, StoreWriter
from anabranch_server.processes.messages import (
    Abort,
    Ack,
    CannotPrepare,
    Hello,
    Ping,
    Pong,
    Prepare,
    Refreshed,
    Released,
    Stats,
)
from anabranch_server.processes.plans import GenerationPlan, StatePlan, VersionPlan
from anabranch_testing.marked_rows import keys, marked_plan, marking
from anabranch_testing.workers import RunningWorker, started_worker, state_of


class Rows:
    """The rows of one version, as a supervisor writes them.

    Attributes:
        plan: of the version.
        number: of the generation.
        writer: of it.
    """

    def __init__(self, plan: VersionPlan, number: int) -> None:
        assert plan.store is not None
        self.plan, self.number = plan, number
        self._path = Path(plan.store.segment)
        segment = Segment.open(self._path)
        room = [Capacity(one.arena_rows, one.keys) for one in plan.store.capacities]
        self.writer = StoreWriter.create(segment, room)

    def mark(self, marker: float) -> None:
        """Give every row a marker."""
        with self.writer.begin() as change:
            marking(marker)(change)
            change.apply()

    def state(self, version: int | None = None) -> StatePlan:
        """Return a state that reads them."""
        read = self.writer.version if version is None else version
        generations = (GenerationPlan(self.plan.version, self.number, read),)
        return msgspec.structs.replace(state_of(self.plan), generations=generations)

    def prepare(self, worker: RunningWorker, epoch: int, state: StatePlan) -> None:
        """Ask a worker for a state."""
        base = os.open(self._path, os.O_RDONLY)
        worker.supervisor.send(Prepare("m", 0, epoch, state), [base, self.writer.fd])
        os.close(base)

    def switch(self, worker: RunningWorker, epoch: int) -> float:
        """Make them current in a worker, and return how long it took to prepare."""
        begun = time.monotonic()
        self.prepare(worker, epoch, self.state())
        assert worker.hear(Ack).epoch == epoch
        took_s = time.monotonic() - begun
        worker.words.store(0, epoch)
        assert worker.hear(Released) == Released("m", epoch)
        return took_s


@dataclass(frozen=True)
class Seen:
    """What a request of several rows met: the least and the greatest number it looked up."""

    version: str
    low: float
    high: float


def look_up(worker: RunningWorker, count: int = 50, *, wrong: int = 0) -> Seen:
    """Look up `count` keys in each table, and `wrong` more that are not there."""
    ids = {name: [*keys(table)[:count].tolist(), *range(5, 5 + wrong)] for table, name in
           enumerate(("a", "b"))}  # fmt: skip
    body = {
        "inputs": [
            {"name": name, "datatype": "INT64", "shape": [len(data), 1], "data": data}
            for name, data in ids.items()
        ]
    }
    request = urllib.request.Request(
        f"http://{worker.http}/v2/models/m/infer",
        msgspec.json.encode(body),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as got:
        answer = msgspec.json.decode(got.read())
    outputs = {one["name"]: one["data"] for one in answer["outputs"]}
    return Seen(answer["model_version"], min(outputs["low"]), max(outputs["high"]))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RunningWorker]:
    with started_worker(tmp_path) as running:
        running.hear(Hello)
        yield running


@pytest.fixture
def rows(worker: RunningWorker, tmp_path: Path) -> Rows:
    """What a worker with open doors serves in epoch 1: marker 0."""
    made = Rows(marked_plan(tmp_path, 1), 1)
    made.switch(worker, 1)
    worker.join()
    return made


@contextmanager
def steady_requests(worker: RunningWorker) -> Iterator[list[Seen]]:
    """Look rows up again and again until the block ends."""
    stopping, seen, faults = threading.Event(), list[Seen](), list[Exception]()

    def run() -> None:
        try:
            while not stopping.is_set():
                seen.append(look_up(worker))
        except Exception as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join()
    assert not faults


def mapped(worker: RunningWorker) -> int:
    """Return how many generations a worker has mapped."""
    lines = Path(f"/proc/{worker.child.pid}/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:anabranch-generation" in line})


def wait_until_mapped(worker: RunningWorker, most: int) -> None:
    """Wait until a worker has at most so many generations mapped."""
    end_s = time.monotonic() + 30
    while mapped(worker) > most:
        assert time.monotonic() < end_s, f"{mapped(worker)} generations are mapped"
        time.sleep(0.02)


def test_requests_read_the_rows_of_the_current_epoch(worker: RunningWorker, rows: Rows) -> None:
    assert look_up(worker) == Seen("1", 0.0, 0.0)

    rows.mark(3.0)
    assert look_up(worker) == Seen("1", 0.0, 0.0)

    rows.switch(worker, 2)
    assert look_up(worker) == Seen("1", 3.0, 3.0)


def test_other_rows_need_no_file_of_the_version(worker: RunningWorker, rows: Rows) -> None:
    Path(rows.plan.path).unlink()
    rows.mark(1.0)

    rows.switch(worker, 2)

    assert look_up(worker) == Seen("1", 1.0, 1.0)


def test_another_generation_of_the_same_version_needs_no_build_either(
    worker: RunningWorker, rows: Rows
) -> None:
    Path(rows.plan.path).unlink()
    other = Rows(rows.plan, 2)
    other.mark(8.0)

    other.switch(worker, 2)

    assert look_up(worker) == Seen("1", 8.0, 8.0)
    wait_until_mapped(worker, 1)


def test_no_request_meets_two_versions_of_rows_and_none_goes_back(
    worker: RunningWorker, rows: Rows
) -> None:
    with steady_requests(worker) as seen:
        for marker in range(1, 101):
            rows.mark(float(marker))
            rows.switch(worker, 1 + marker)
            rows.writer.reclaim(rows.writer.version)

    assert all(one.low == one.high for one in seen)
    markers = [one.low for one in seen]
    assert markers == sorted(markers)
    assert len(set(markers)) > 3


def test_generations_that_nobody_reads_are_unmapped(worker: RunningWorker, rows: Rows) -> None:
    made = [Rows(rows.plan, number) for number in range(2, 52)]
    descriptors = worker.figures()[0]

    for epoch, one in enumerate(made, 2):
        one.switch(worker, epoch)
        assert mapped(worker) <= 3

    wait_until_mapped(worker, 1)
    assert look_up(worker) == Seen("1", 0.0, 0.0)
    assert worker.figures()[0] <= descriptors + 2


def test_what_was_prepared_and_aborted_is_unmapped(worker: RunningWorker, rows: Rows) -> None:
    other = Rows(rows.plan, 2)
    other.prepare(worker, 2, other.state())
    worker.hear(Ack)
    assert mapped(worker) == 2

    worker.say(Abort("m", 2))

    wait_until_mapped(worker, 1)
    assert look_up(worker) == Seen("1", 0.0, 0.0)


def test_memory_that_is_no_generation_is_refused_and_the_rest_serves_on(
    worker: RunningWorker, rows: Rows
) -> None:
    wrong = os.memfd_create("wrong")
    os.ftruncate(wrong, 1 << 16)
    base = os.open(rows.plan.path, os.O_RDONLY)
    state = msgspec.structs.replace(rows.state(), generations=(GenerationPlan(1, 9, 1),))
    worker.supervisor.send(Prepare("m", 0, 2, state), [base, wrong])
    os.close(base)
    os.close(wrong)

    refused = worker.hear(CannotPrepare)

    assert (refused.epoch, refused.kind) == (2, "Corrupt")
    assert "/" not in refused.error
    assert look_up(worker) == Seen("1", 0.0, 0.0)


def test_another_supervisor_is_told_which_generation_is_read(
    worker: RunningWorker, rows: Rows
) -> None:
    hello = worker.new_supervisor()

    state = hello.models["m"].state
    assert state is not None
    assert state.generations == (GenerationPlan(1, 1, 1),)
    worker.say(Ping(1))
    worker.hear(Pong)
    assert look_up(worker) == Seen("1", 0.0, 0.0)


def test_what_was_looked_up_and_missed_is_counted(worker: RunningWorker, rows: Rows) -> None:
    look_up(worker, 10, wrong=2)
    look_up(worker, 10)

    worker.say(Stats(1))
    worker.hear(Refreshed)
    counted = {
        (series.name.removeprefix("anabranch_"), dict(series.labels)[label]): series.values[0]
        for series in worker.series()
        for label in ("table", "feature")
        if label in dict(series.labels)
    }
    assert counted["store_lookups_total", "a"] == 22
    assert counted["store_misses_total", "b"] == 2
    assert counted["feature_keys_total", "b"] == 22
    assert counted["feature_misses_total", "a"] == 2


def test_changed_rows_are_ready_in_milliseconds(worker: RunningWorker, rows: Rows) -> None:
    took_s = []
    for epoch in range(2, 22):
        rows.mark(float(epoch))
        took_s.append(rows.switch(worker, epoch))
        rows.writer.reclaim(rows.writer.version)

    assert min(took_s) < 0.02  # a build takes several times as long
