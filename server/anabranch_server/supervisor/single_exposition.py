"""What a scrape sees while everything is one process."""

from collections.abc import Iterator

from anabranch_runtime.counters import CountersReader
from anabranch_runtime.cpu import kernel_isa
from anabranch_server.metrics import Value, exposition, process_figures
from anabranch_server.worker import Worker

__all__ = ["SingleExposition"]


class SingleExposition:
    """Renders the metrics of the one worker of this process. Safe from any thread.

    Args:
        worker: what answers requests.
        version: of the server.
    """

    def __init__(self, worker: Worker, version: str) -> None:
        self._reader = CountersReader(worker.page.fd)
        self._worker = worker
        self._version = version

    async def render(self) -> bytes:
        """Return the text of a scrape."""
        return exposition(self._reader.read(), self._moment())

    def _moment(self) -> Iterator[Value]:
        for model, state in self._worker.catalog.states.items():
            at = (model,)
            groups = {served.group for served in state.versions.values()}
            depths = [group.queue_depth() for group in groups]
            yield Value("anabranch_queue_requests", at, sum(requests for requests, _ in depths))
            yield Value("anabranch_queue_rows", at, sum(rows for _, rows in depths))
            in_flight = sum(group.in_flight() for group in groups)
            yield Value("anabranch_requests_in_flight", at, in_flight)
            served = None if state.default is None else state.versions.get(state.default)
            yield Value("anabranch_model_ready", at, served is not None)
            if served is not None:
                yield Value("anabranch_snapshot_version", at, served.snapshot.version)
                yield Value("anabranch_snapshot_delta", at, served.snapshot.delta)
        yield Value("anabranch_build_info", (self._version, "ort-cpu", kernel_isa()), 1)
        for name, value in process_figures().items():
            yield Value(name, (str(self._worker.index),), value)
