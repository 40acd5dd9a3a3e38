"""A trace of all workers: who answers, who dies, what becomes of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from anabranch_runtime.spans import Passage, Recorded, Span
from anabranch_server.metrics.totals import Totals
from anabranch_server.processes.messages import Ack, CannotPrepare, Hello, Released, Trace, Traced
from anabranch_server.supervisor.chrome_trace import TracedWorker, chrome_trace
from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.tracing import Tracer
from anabranch_server.supervisor.workers import Pool
from anabranch_testing.event_loops import on_loop
from anabranch_testing.stand_ins import StandIn, until
from anabranch_wire.errors import Conflict, InvalidInput, Unavailable

RUN = Span("run", 7, "m-e0", 10.25, 10.5, {"rows": 3})
REQUEST = Passage(
    "request",
    10.0,
    11.0,
    (("decode", 10.125), ("queue", 10.25), ("run", 10.5), ("encode", 11.0)),
    {"request_id": "r1"},
)
BUILD = Passage("build", 10.0, 10.5, (), {"version": 2})


class Quiet:
    """An attendant that keeps nothing."""

    def greeted(self, worker: WorkerId, hello: Hello) -> None: ...

    def answered(self, worker: WorkerId, message: Ack | CannotPrepare | Released) -> None: ...

    def lost(self, worker: WorkerId) -> None: ...


class Crew:
    """A pool with two workers that said hello, and one that did not."""

    def __init__(self, folder: Path) -> None:
        self.pool = Pool(Quiet(), Totals(folder / "totals", "0" * 16), 30.0)
        self.tracer = Tracer(self.pool)
        self.workers = [StandIn(index) for index in range(3)]
        for worker in self.workers:
            worker.attach(self.pool)
        for worker in self.workers[:2]:
            worker.greet()

    async def __aenter__(self) -> "Crew":
        await until(lambda: len(self.pool.pids()) == 2)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.pool.close()
        for worker in self.workers:
            worker.close()

    async def asked(self) -> list[int]:
        """The numbers of the request that both workers have been told of."""
        numbers = []
        for worker in self.workers[:2]:
            told = await worker.hear(Trace)
            assert isinstance(told, Trace)
            numbers.append(told.number)
        return numbers


def events(data: bytes) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    return listed


@on_loop
async def test_what_all_workers_wrote_down_is_put_together(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        recording = asyncio.create_task(crew.tracer.record(0.1))
        assert await crew.asked() == [1, 1]
        crew.workers[0].say(Traced(0, Recorded((RUN,) * 9)))  # answers an earlier supervisor
        for worker in crew.workers[:2]:
            worker.say(Traced(1, Recorded((RUN,))))

        runs = [one for one in events(await recording) if one["name"] == "run"]

        assert [one["pid"] for one in runs] == [one.process.pid for one in crew.workers[:2]]
        assert crew.workers[2].heard == []


@on_loop
async def test_one_trace_at_a_time_and_the_next_one_after_it(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        recording = asyncio.create_task(crew.tracer.record(60.0))
        await crew.asked()
        with pytest.raises(Conflict, match="being recorded"):
            await crew.tracer.record(1.0)
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording

        recording = asyncio.create_task(crew.tracer.record(0.1))
        assert await crew.asked() == [2, 2]
        for worker in crew.workers[:2]:
            worker.say(Traced(2, Recorded()))
        assert {one["ph"] for one in events(await recording)} == {"M"}


@on_loop
async def test_a_dead_worker_is_not_waited_for(tmp_path: Path) -> None:
    async with Crew(tmp_path) as crew:
        recording = asyncio.create_task(crew.tracer.record(60.0))
        await crew.asked()
        crew.workers[1].die()
        crew.workers[0].say(Traced(1, Recorded((RUN,))))
        assert [one["pid"] for one in events(await recording) if one["name"] == "run"] == [
            crew.workers[0].process.pid
        ]
        crew.workers[0].die()
        await until(lambda: not crew.pool.pids())
        with pytest.raises(Unavailable, match="no worker"):
            await crew.tracer.record(1.0)


@on_loop
@pytest.mark.parametrize("seconds", [0.0, 0.09, 60.1, float("nan"), float("inf"), -1.0])
async def test_times_out_of_bounds_are_refused(tmp_path: Path, seconds: float) -> None:
    tracer = Tracer(Pool(Quiet(), Totals(tmp_path / "totals", "0" * 16), 30.0))
    with pytest.raises(InvalidInput, match=r"expected 0\.1 to 60"):
        await tracer.record(seconds)


def test_the_document_has_names_threads_and_steps_within_their_request() -> None:
    shown = events(chrome_trace([TracedWorker(3, 40, Recorded((RUN,), (REQUEST, BUILD)))]))

    assert shown[:2] == [
        {"ph": "M", "name": "process_name", "pid": 40, "tid": 40, "args": {"name": "worker 3"}},
        {"ph": "M", "name": "thread_name", "pid": 40, "tid": 7, "args": {"name": "m-e0"}},
    ]
    assert (shown[2]["ph"], shown[2]["ts"], shown[2]["dur"]) == ("X", 250000.0, 250000.0)
    request = [one for one in shown if one.get("cat") == "request"]
    assert [(one["ph"], one["name"], one["ts"]) for one in request] == [
        ("b", "request", 0.0),
        ("b", "decode", 0.0),
        ("e", "decode", 125000.0),
        ("b", "queue", 125000.0),
        ("e", "queue", 250000.0),
        ("b", "run", 250000.0),
        ("e", "run", 500000.0),
        ("b", "encode", 500000.0),
        ("e", "encode", 1000000.0),
        ("e", "request", 1000000.0),
    ]
    assert request[0]["args"] == {"request_id": "r1"}
    build = [one for one in shown if one.get("cat") == "build"]
    assert len({one["id"] for one in request}) == len({one["id"] for one in build}) == 1
    assert request[0]["id"] != build[0]["id"]
    assert events(chrome_trace([])) == []
