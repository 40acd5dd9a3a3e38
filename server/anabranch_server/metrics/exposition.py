"""What a scrape sees: the counters page and what is true at that moment, as Prometheus text."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.counters import CountersPage, CountersReader, Series
from anabranch_runtime.cpu import kernel_isa
from anabranch_server.metrics.names import METRICS
from anabranch_server.metrics.process import process_figures

__all__ = ["Exposition"]

_AnyFamily = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Exposition(Collector):
    """Renders the metrics of one serving process. Safe from any thread.

    Args:
        page: what was counted.
        catalog: what is served, with the queues behind it.
        version: of the server.
        worker: index of the process among the workers.
    """

    def __init__(self, page: CountersPage, catalog: Catalog, version: str, worker: int) -> None:
        self._reader = CountersReader(page.fd)
        self._catalog = catalog
        self._version = version
        self._worker = str(worker)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self) -> bytes:
        """Return the text of a scrape, in version 0.0.4 of Prometheus' format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Family]:
        """Return the metrics without values; keeps registration from reading the page."""
        return _Families().all()

    def collect(self) -> Iterable[Family]:
        """Return every metric with its values now."""
        families = _Families()
        for series in self._reader.read():
            families.add_series(series)
        for name, labels, value in self._moment():
            families.add(name, labels, value)
        return families.all()

    def _moment(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Yield what is not counted but true now: name, label values, value."""
        for model, state in self._catalog.states.items():
            at = (model,)
            groups = {served.group for served in state.versions.values()}
            depths = [group.queue_depth() for group in groups]
            yield "anabranch_queue_requests", at, sum(requests for requests, _ in depths)
            yield "anabranch_queue_rows", at, sum(rows for _, rows in depths)
            yield "anabranch_requests_in_flight", at, sum(group.in_flight() for group in groups)
            served = None if state.default is None else state.versions.get(state.default)
            yield "anabranch_model_ready", at, served is not None
            if served is not None:
                yield "anabranch_snapshot_version", at, served.snapshot.version
                yield "anabranch_snapshot_delta", at, served.snapshot.delta
        yield "anabranch_build_info", (self._version, "ort-cpu", kernel_isa()), 1
        for name, value in process_figures().items():
            yield name, (self._worker,), value


class _Families:
    """Prometheus families of all metrics, filled one series at a time."""

    def __init__(self) -> None:
        self._families: Mapping[str, _AnyFamily] = {
            name: _FAMILIES[metric.kind](name, metric.help, labels=metric.labels)
            for name, metric in METRICS.items()
        }

    def all(self) -> Iterable[Family]:
        """Return the families, in the order of `METRICS`."""
        return self._families.values()

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Add a counter or gauge."""
        family = self._families[name]
        assert not isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, value)

    def add_series(self, series: Series) -> None:
        """Add a series of the page; its labels come by name."""
        values = dict(series.labels)
        labels = [values[name] for name in METRICS[series.name].labels]
        family = self._families[series.name]
        if isinstance(family, HistogramMetricFamily):
            ends = [*map(repr, series.bounds), "+Inf"]
            buckets = list(zip(ends, accumulate(series.values), strict=True))
            family.add_metric(labels, buckets, series.sum)
        else:
            family.add_metric(labels, series.values[0])


_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
