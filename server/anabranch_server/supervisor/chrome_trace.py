"""What workers wrote down as one document that trace viewers read (Chrome's Trace Event Format).

Threads show what they did as complete events (`X`). Requests, builds and the like overlap, so they
are nestable asynchronous events (`b`, `e`), each with an id of its own. Times are microseconds
since the earliest event.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from anabranch_runtime.spans import Passage, Recorded, Span

__all__ = ["TracedWorker", "chrome_trace"]

_Event = dict[str, object]


@dataclass(frozen=True, slots=True)
class TracedWorker:
    """What one worker wrote down.

    Attributes:
        index: number of the worker.
        pid: its process.
        recorded: what it wrote down.
    """

    index: int
    pid: int
    recorded: Recorded


def chrome_trace(workers: Sequence[TracedWorker]) -> bytes:
    """Return the document. Takes a while where much was recorded; any thread may call it."""
    begins = [span.begin for worker in workers for span in worker.recorded.spans]
    begins += [passage.begin for worker in workers for passage in worker.recorded.passages]
    origin = min(begins, default=0.0)
    events = [event for worker in workers for event in _events(worker, origin)]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _events(worker: TracedWorker, origin: float) -> Iterator[_Event]:
    pid, recorded = worker.pid, worker.recorded
    yield _named("process_name", pid, pid, f"worker {worker.index}")
    threads = {span.thread: span.thread_name for span in recorded.spans}
    for thread, name in sorted(threads.items()):
        yield _named("thread_name", pid, thread, name)
    for span in recorded.spans:
        yield _complete(span, pid, origin)
    for number, passage in enumerate(recorded.passages):
        yield from _nested(passage, pid, f"{pid}-{number}", origin)


def _named(what: str, pid: int, thread: int, name: str) -> _Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": thread, "args": {"name": name}}


def _complete(span: Span, pid: int, origin: float) -> _Event:
    begin = _us(span.begin, origin)
    return {
        "ph": "X",
        "name": span.name,
        "cat": "thread",
        "pid": pid,
        "tid": span.thread,
        "ts": begin,
        "dur": round(_us(span.end, origin) - begin, 3),
        "args": span.args,
    }


def _nested(passage: Passage, pid: int, identity: str, origin: float) -> Iterator[_Event]:
    def event(phase: str, name: str, at: float, args: Mapping[str, str | int]) -> _Event:
        return {
            "ph": phase,
            "name": name,
            "cat": passage.name,
            "id": identity,
            "pid": pid,
            "tid": pid,
            "ts": _us(at, origin),
            "args": args,
        }

    yield event("b", passage.name, passage.begin, passage.args)
    begin = passage.begin
    for name, end in passage.steps:
        yield event("b", name, begin, {})
        yield event("e", name, end, {})
        begin = end
    yield event("e", passage.name, passage.end, {})


def _us(at: float, origin: float) -> float:
    return round((at - origin) * 1e6, 3)
