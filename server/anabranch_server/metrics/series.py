"""Series of one page, made as they are met and retired with what they are about.

Invariant: a page that is full loses new series, not requests, and says so once.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from anabranch_runtime.counters import CountersPage, Recorder, Slot
from anabranch_server.metrics.names import METRICS
from anabranch_wire.errors import Unavailable

__all__ = ["AnyRecorder", "ManyRecorder", "PageSeries"]

_log = logging.getLogger(__name__)

_MOST: Final = 32
"""Series that one native call updates at most."""


class _NoRecorder:
    """Stands in for the recorder of series that found no room."""

    def record(self, *values: float) -> None:
        """Forget `values`."""


AnyRecorder = Recorder | _NoRecorder


class ManyRecorder:
    """Updates any number of series, as many at a time as one native call takes."""

    def __init__(self, recorders: Sequence[AnyRecorder]) -> None:
        self._recorders = tuple(enumerate(recorders))

    def record(self, values: Sequence[float]) -> None:
        """Add `values`, one for each series in their order."""
        for place, recorder in self._recorders:
            recorder.record(*values[place * _MOST : (place + 1) * _MOST])


class PageSeries:
    """Makes recorders on a page from metric names and label values, one caller at a time."""

    def __init__(self, page: CountersPage) -> None:
        self._page = page
        self._full = False
        self._slots: dict[tuple[str, str], set[Slot]] = {}

    def recorder(
        self,
        wanted: Mapping[str, tuple[str, ...]],
        several: Mapping[str, Sequence[tuple[str, ...]]] = MappingProxyType({}),
    ) -> AnyRecorder:
        """Return one recorder for series, in their order.

        Args:
            wanted: name -> label values.
            several: the same for metrics of which the recorder has more than one series; they
                follow the others.
        """
        try:
            slots = [self._slot(name, at) for name, at in wanted.items()]
            slots += [self._slot(name, at) for name, places in several.items() for at in places]
            return self._page.recorder(slots)
        except Unavailable as full:
            if not self._full:
                self._full = True
                _log.error("%s", full.message, extra={"event": "metrics_full"})
            return _NoRecorder()

    def many(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> ManyRecorder:
        """Return one recorder for series, given as name and label values, in their order."""
        return ManyRecorder(
            [
                self.recorder({}, _by_name(wanted[begin : begin + _MOST]))
                for begin in range(0, len(wanted), _MOST)
            ]
        )

    def _slot(self, name: str, values: tuple[str, ...]) -> int:
        metric = METRICS[name]
        labels = list(zip(metric.labels, values, strict=True))
        if metric.kind == "histogram":
            slot = self._page.histogram(name, labels, metric.bounds)
        elif metric.kind == "counter":
            slot = self._page.counter(name, labels)
        else:
            slot = self._page.gauge(name, labels)
        named = dict(labels)
        if "model" in named:
            self._slots.setdefault((named["model"], named.get("version", "")), set()).add(slot)
        return slot

    def retire(self, model: str, version: str | None) -> None:
        """Take the series of a version, or of all of a model, off the page."""
        owners = [
            owner for owner in self._slots if owner[0] == model and version in (None, owner[1])
        ]
        for owner in owners:
            for slot in self._slots.pop(owner):
                self._page.retire(slot)


def _by_name(
    wanted: Iterable[tuple[str, tuple[str, ...]]],
) -> dict[str, list[tuple[str, ...]]]:
    """Label values by name; series of one name follow each other."""
    return {
        name: [at for _, at in those] for name, those in groupby(wanted, key=lambda one: one[0])
    }
