"""What a scrape sees: series that were counted and values of the moment, as Prometheus text."""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from anabranch_runtime.counters import Series
from anabranch_server.metrics.names import METRICS

__all__ = ["Value", "exposition"]

_AnyFamily = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Value(NamedTuple):
    """What is true at the moment of a scrape.

    Attributes:
        name: a counter or gauge of `METRICS`.
        labels: values of its labels, in their order.
        value: its value.
    """

    name: str
    labels: tuple[str, ...]
    value: float


def exposition(series: Iterable[Series], values: Iterable[Value]) -> bytes:
    """Return the text of a scrape, in version 0.0.4 of Prometheus' format. Safe from any thread.

    Args:
        series: of counters pages; each once.
        values: beside them.
    """
    families = _Families()
    for one in series:
        families.add_series(one)
    for name, labels, value in values:
        families.add(name, labels, value)
    registry = CollectorRegistry()
    registry.register(families)
    return generate_latest(registry)


class _Families(Collector):
    """Prometheus families of all metrics, filled one series at a time."""

    def __init__(self) -> None:
        self._families: Mapping[str, _AnyFamily] = {
            name: _FAMILIES[metric.kind](name, metric.help, labels=metric.labels)
            for name, metric in METRICS.items()
        }

    def collect(self) -> Iterable[Family]:
        """Return the families, in the order of `METRICS`."""
        return self._families.values()

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Add a counter or gauge."""
        family = self._families[name]
        assert not isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, value)

    def add_series(self, series: Series) -> None:
        """Add a series of a page; its labels come by name."""
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
