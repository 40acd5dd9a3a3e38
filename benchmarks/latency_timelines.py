"""Latencies over time, second by second, and their picture with marks where something happened."""

import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from openloop.answers import Answer

__all__ = ["Mark", "Recorder", "Timeline", "draw"]

_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened.

    Attributes:
        at_s: `time.monotonic`.
        kind: what, in a word.
    """

    at_s: float
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Answers of one run.

    Attributes:
        due_s: (n,) float64, when each request was due, `time.monotonic`.
        ms: (n,) float64, from then to the end of its answer.
        failed: requests that were not answered with 2xx.
        marks: what happened meanwhile.
    """

    due_s: NDArray[np.float64]
    ms: NDArray[np.float64]
    failed: int
    marks: tuple[Mark, ...]

    def quantile(self, share: float) -> float:
        """Return the latency in ms that so many of the answers do not pass; 0 without answers."""
        return float(np.quantile(self.ms, share)) if len(self.ms) else 0.0


class Recorder:
    """Takes answers from a load's thread, and marks from any."""

    def __init__(self) -> None:
        self._due = array("q")
        self._taken = array("q")
        self._failed = 0
        self._marks: list[Mark] = []
        self._lock = threading.Lock()

    def take(self, answer: Answer) -> None:
        """Note one answer."""
        if answer.outcome != "ok":
            self._failed += 1
            return
        self._due.append(answer.due_ns)
        self._taken.append(answer.ended_ns - answer.due_ns)

    def mark(self, kind: str) -> None:
        """Note that something happened now."""
        with self._lock:
            self._marks.append(Mark(time.monotonic(), kind))

    def timeline(self) -> Timeline:
        """Return what was noted; after the load has ended."""
        return Timeline(
            np.array(self._due, np.float64) / _NS,
            np.array(self._taken, np.float64) / 1e6,
            self._failed,
            tuple(self._marks),
        )


def draw(path: Path, title: str, lines: Sequence[tuple[str, Timeline]]) -> None:
    """Write a PNG: p50, p99 and p99.9 of each second of each timeline, with marks.

    Args:
        path: of the picture.
        title: above it.
        lines: name and timeline of each panel.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        len(lines), 1, figsize=(11, 3.2 * len(lines)), sharey=True, squeeze=False
    )
    colours = {"delta": "#8c959f", "dense": "#8250df", "version": "#d1242f"}
    for panel, (name, timeline) in zip(panels[:, 0], lines, strict=True):
        begin = float(timeline.due_s.min())
        seconds = np.floor(timeline.due_s - begin).astype(np.int64)
        order = np.argsort(seconds, kind="stable")
        bounds = np.flatnonzero(np.diff(seconds[order])) + 1
        groups = np.split(timeline.ms[order], bounds)
        at = seconds[order][np.concatenate(([0], bounds))]
        for share, label in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
            panel.plot(at, [np.quantile(group, share) for group in groups], label=label, lw=1)
        seen: set[str] = set()
        for mark in timeline.marks:
            named = None if mark.kind in seen else mark.kind
            seen.add(mark.kind)
            strong = mark.kind != "delta"
            panel.axvline(
                mark.at_s - begin,
                color=colours.get(mark.kind, "#1a7f37"),
                lw=1.2 if strong else 0.4,
                ls="--" if strong else ":",
                label=named,
            )
        panel.set_yscale("log")
        panel.set_title(name, fontsize=10)
        panel.set_ylabel("ms from the due time")
        panel.legend(loc="upper right", fontsize=7, ncols=6)
    panels[-1, 0].set_xlabel("seconds")
    figure.suptitle(title, fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
