"""The counters page of one worker, and what is written there about its models."""

from collections.abc import Iterable

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.spans import Spans
from anabranch_server.metrics import ModelCounters, RequestCounters, create_page
from anabranch_server.worker.retirement import Retirement

__all__ = ["Counting"]


class Counting:
    """Belongs to the event loop; the counters it gives out may be used from any thread.

    Args:
        worker: index of the process among the workers.
        catalog: tells which model names are known.

    Attributes:
        page: for the supervisor; made anew by each incarnation.
        requests: counts requests.
        retirement: what was unloaded, and will be forgotten.
        spans: what takes how long, while somebody asks for it.
    """

    def __init__(self, worker: int, catalog: Catalog) -> None:
        self._worker = worker
        self.page = create_page()
        self.requests = RequestCounters(self.page, catalog)
        self.retirement = Retirement()
        self.spans = Spans()
        self._models: dict[str, ModelCounters] = {}

    def model(self, name: str) -> ModelCounters:
        """Return the counters of a model, which its session groups share."""
        counters = self._models.get(name)
        if counters is None:
            counters = self._models[name] = ModelCounters(self.page, name, self._worker, self.spans)
        return counters

    def refresh(self, name: str, groups: Iterable[SessionGroup]) -> None:
        """Write how much waits for a model at this moment."""
        groups = list(groups)
        depths = [group.queue_depth() for group in groups]
        self.model(name).waiting(
            sum(requests for requests, _ in depths),
            sum(rows for _, rows in depths),
            sum(group.in_flight() for group in groups),
        )

    def retire(self, now_s: float) -> None:
        """Take the series of what was unloaded some minutes ago off the page."""
        for model, version in self.retirement.due(now_s):
            self.requests.retire(model, version)
            counters = self._models.get(model)
            if counters is not None:
                counters.retire(version)
            if version is None:
                self._models.pop(model, None)
