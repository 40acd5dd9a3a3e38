"""Spans: nothing while off, the newest while on, whatever threads add."""

import threading
from pathlib import Path

import numpy as np

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.spans import Span, Spans
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import (
    Collector,
    Counts,
    load_version,
    open_groups,
    ticket_of,
    until_asleep,
)


def test_nothing_is_kept_while_it_is_off() -> None:
    spans = Spans()
    spans.add("run", 1.0, 2.0, {})
    spans.begin()
    assert spans.is_on
    spans.add("run", 2.0, 3.0, {"rows": 4})
    spans.add_passage("request", 1.0, 3.0, {"request_id": "r"}, (("decode", 3.0),))
    recorded = spans.end()
    spans.add("run", 3.0, 4.0, {})
    spans.add_passage("request", 3.0, 4.0, {})

    thread = threading.current_thread()
    assert recorded.spans == (
        Span("run", threading.get_native_id(), thread.name, 2.0, 3.0, {"rows": 4}),
    )
    assert [passage.args["request_id"] for passage in recorded.passages] == ["r"]
    nothing = spans.end()
    assert (nothing.spans, nothing.passages) == ((), ())


def test_the_newest_are_kept_and_an_earlier_recording_is_forgotten() -> None:
    spans = Spans(spans=3, passages=2)
    spans.begin()
    spans.add("before", 0.0, 0.0, {})
    spans.begin()
    for at in range(5):
        spans.add("run", at, at, {})
        spans.add_passage("request", at, at, {})
    recorded = spans.end()
    assert [span.begin for span in recorded.spans] == [2, 3, 4]
    assert [passage.begin for passage in recorded.passages] == [3, 4]


def test_threads_may_add_while_it_ends() -> None:
    spans = Spans()
    spans.begin()
    over = threading.Event()

    def add() -> None:
        while not over.is_set():
            spans.add("run", 0.0, 1.0, {})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    numbers = set()
    for _ in range(50):
        numbers |= {span.thread for span in spans.end().spans}
        spans.begin()
    over.set()
    for thread in threads:
        thread.join()
    assert numbers <= {thread.native_id for thread in threads}


def test_a_batch_holds_its_stages_and_its_delivery(tmp_path: Path) -> None:
    counts, sink = Counts(), Collector()
    with open_groups(OrtCpuBackend(), counts) as make_group:
        group = make_group()
        served = load_version(group, scale_model(tmp_path))
        until_asleep(group)
        for is_traced in (False, True):
            if is_traced:
                counts.spans.begin()
            group.submit(ticket_of(served, sink, np.ones((3, 4), np.float32)))
            sink.wait(2 if is_traced else 1)
            until_asleep(group)
    recorded = counts.spans.end()

    assert [span.name for span in recorded.spans] == ["stage", "run", "deliver", "batch"]
    stage, run, deliver, batch = recorded.spans
    assert batch.begin <= stage.begin <= stage.end == run.begin <= run.end <= deliver.begin
    assert deliver.end == batch.end
    assert {span.thread_name for span in recorded.spans} == {"m-e0"}
    assert batch.args == {"model": "m", "version": 1, "requests": 1, "rows": 3}
