"""Adding up what several processes count."""

from collections.abc import Iterable
from dataclasses import replace

from anabranch_runtime.counters import Series

__all__ = ["added_up"]


def added_up(parts: Iterable[Iterable[Series]]) -> list[Series]:
    """Return one series for each name and labels, with the values of all parts added.

    Histograms of one name whose bounds differ, as they might after an update, stay apart: the
    first ones seen are kept and the others are left out.
    """
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
    for part in parts:
        for series in part:
            at = (series.name, series.labels)
            before = sums.get(at)
            if before is None:
                sums[at] = series
            elif before.bounds == series.bounds and before.kind == series.kind:
                sums[at] = replace(
                    before,
                    values=tuple(map(sum, zip(before.values, series.values, strict=True))),
                    sum=before.sum + series.sum,
                    count=before.count + series.count,
                )
    return list(sums.values())
