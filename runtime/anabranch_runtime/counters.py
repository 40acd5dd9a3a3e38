"""Counters of one worker process, in a page of shared memory that a supervisor reads.

The worker owns a `CountersPage` and hands its descriptor to the supervisor, which reads it with a
`CountersReader`, also after the worker has died. Layout: docs/formats.md, section "Counters page".

Invariant: updates are never lost, whatever thread makes them; a reader never sees a mixture of two
series.
"""

from dataclasses import dataclass
from typing import Literal

from anabranch_runtime import _native
from anabranch_runtime._native import CountersPage, Recorder

__all__ = ["CountersPage", "CountersReader", "Kind", "Recorder", "Series", "Slot"]

Kind = Literal["counter", "gauge", "histogram"]

Slot = int
"""A series of one page, as `CountersPage.counter`, `gauge` and `histogram` return it."""


@dataclass(frozen=True, slots=True)
class Series:
    """One live series of a page at some moment of the read.

    Attributes:
        kind: what the values mean.
        name: the metric's name.
        labels: pairs of key and value, ascending by key.
        values: counter or gauge: one value; histogram: observations per bucket, not cumulated,
            one more than there are bounds.
        bounds: histogram: the inclusive upper end of each bucket but the last.
        sum: histogram: sum of the observed values; otherwise the value.
        count: histogram: number of observations; otherwise 0.
    """

    kind: Kind
    name: str
    labels: tuple[tuple[str, str], ...]
    values: tuple[float, ...]
    bounds: tuple[float, ...]
    sum: float
    count: int


class CountersReader:
    """Reads the page of another process, or of this one; any thread may call it at any time."""

    def __init__(self, fd: int) -> None:
        """Map the page behind a descriptor, which stays the caller's and may be closed afterwards.

        Raises:
            Corrupt: not a counters page, or a damaged one.
            OSError: the descriptor cannot be mapped.
        """
        self._reader = _native.CountersReader(fd)

    def read(self) -> list[Series]:
        """Return every live series in the order of the page, each value exact at some moment.

        Raises:
            Corrupt: the page is damaged; the message names the record.
        """
        return [
            Series(
                kind=kind,
                name=name,
                labels=tuple(labels),
                values=tuple(buckets) if kind == "histogram" else (value,),
                bounds=tuple(bounds),
                sum=value,
                count=sum(buckets),
            )
            for kind, name, labels, bounds, buckets, value in self._reader.read()
        ]
