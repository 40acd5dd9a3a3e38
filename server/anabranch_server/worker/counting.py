"""The counters page of one worker, and what is written there about its models."""

from collections.abc import Iterable

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.executor_lookups import LookupCount, LookupCounts
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
        self._looked_up: dict[SessionGroup, LookupCounts] = {}

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
        for group in groups:
            self._count_lookups(name, group)

    def group_gone(self, name: str, group: SessionGroup) -> None:
        """Count what a group looked up that is about to be closed."""
        self._count_lookups(name, group)
        self._looked_up.pop(group, None)

    def _count_lookups(self, name: str, group: SessionGroup) -> None:
        """Count what was looked up since the last time."""
        counts = group.lookup_counts()
        if counts:
            before = self._looked_up.get(group, {})
            self._looked_up[group] = counts
            self.model(name).looked_up(_since(before, counts))

    def retire(self, now_s: float) -> None:
        """Take the series of what was unloaded some minutes ago off the page."""
        for model, version in self.retirement.due(now_s):
            self.requests.retire(model, version)
            counters = self._models.get(model)
            if counters is not None:
                counters.retire(version)
            if version is None:
                self._models.pop(model, None)


def _since(before: LookupCounts, counts: LookupCounts) -> LookupCounts:
    """What `counts` have beyond `before`."""
    nothing = LookupCount(0, 0)
    return {
        at: LookupCount(
            count.keys - before.get(at, nothing).keys, count.misses - before.get(at, nothing).misses
        )
        for at, count in counts.items()
    }
