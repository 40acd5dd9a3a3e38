"""W9: deltas of 100,000 rows a second, new dense weights and full versions, under an open loop.

Steady windows, in which nothing is published, alternate with windows in which a delta comes each
second, with all dense weights every so often; the loader has a core of its own in some, and the
server's in the others. Windows are short and many: a machine that is shared stands still for tens
of milliseconds now and then, which is more than one in a hundred requests of a window, and the
median passes over the windows in which it does. Longer windows, in which a whole version comes
beside the deltas, are rows of their own.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, Literal

import rows as results
from anabranch_testing.server_processes import ServerProcesses
from anabranch_testing.servers import RunningServer, started_server
from fresh_deltas import StagedDeltas
from fresh_model import MODEL, FreshModel, requests
from latency_timelines import Recorder, Timeline, draw
from openloop import Background, HttpTransport, Plan
from openloop.background import measure
from served_deltas import wait_served

__all__ = ["PLACES", "DeltaSizes", "Place", "delta_rows", "place_loader"]

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop")

Place = Literal["a core of its own", "the server's core"]
PLACES: Final[tuple[Place, ...]] = ("a core of its own", "the server's core")

_SHARE: Final = 0.6
_CONNECTIONS: Final = 64
_BATCH: Final = 128
_BODIES: Final = 128
_TIMEOUT_S: Final = 20.0
_AT_ONCE: Final = 1e9


@dataclass(frozen=True, slots=True)
class DeltaSizes:
    """How much is done.

    Attributes:
        rows: of the table.
        changed: rows of a delta.
        rounds: of windows.
        seconds: of one window.
        dense_every: deltas from one with dense weights to the next.
        versions: windows of each place, after the others, in which a whole version is published.
        version_seconds: of those.
        requests: that measure the capacity.
    """

    rows: int = 8_000_000
    changed: int = 100_000
    rounds: int = 15
    seconds: float = 12.0
    dense_every: int = 30
    versions: int = 2
    version_seconds: float = 40.0
    requests: int = 6000


@dataclass(slots=True)
class _Seen:
    """Windows of one place of the loader, and what they are held against."""

    windows: list[Timeline] = field(default_factory=list)
    steady: list[Timeline] = field(default_factory=list)
    deltas: int = 0

    def ratios(self, share: float) -> list[float]:
        """Return a quantile of each window, over that of the steady one before it."""
        return [
            window.quantile(share) / steady.quantile(share)
            for window, steady in zip(self.windows, self.steady, strict=True)
        ]


class _Publishing:
    """What is published during windows: deltas of the newest version, and versions.

    A window with a version has its deltas for the version before until that is served.
    """

    def __init__(self, model: FreshModel, server: RunningServer, sizes: DeltaSizes) -> None:
        self._model = model
        self._server = server
        self._sizes = sizes
        self._version = 1
        self._left = 0
        self._deltas = StagedDeltas(model, 1, sizes.changed)

    def stage(self, *, with_version: bool) -> None:
        """Make all that the next window publishes."""
        self._left = int(self._sizes.version_seconds if with_version else self._sizes.seconds)
        if with_version:
            self._model.publish(self._version + 1, self._staged)
        self._deltas.stage(self._left, self._sizes.dense_every)

    @property
    def _staged(self) -> Path:
        folder = self._model.repository.parent / "staged" / MODEL
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, recorder: Recorder, over: threading.Event, *, with_version: bool) -> int:
        """Publish until the window is over; return how many deltas that were."""
        published, next_s = 0, time.monotonic()
        while not over.wait(max(0.0, next_s - time.monotonic())):
            next_s += 1.0
            if published >= self._left:
                continue
            published += 1
            number = self._deltas.publish()
            has_dense = number % self._sizes.dense_every == 0
            recorder.mark("dense" if has_dense else "delta")
            if with_version and published == 3:
                (self._staged / str(self._version + 1)).rename(
                    self._model.folder / str(self._version + 1)
                )
                recorder.mark("version")
        return published

    def settle(self, *, with_version: bool) -> None:
        """Wait until all that was published is served."""
        if with_version:
            old, self._version = self._version, self._version + 1
            wait_served(self._server.admin, MODEL, self._version, 0)
            shutil.rmtree(self._model.folder / str(old))
            shutil.rmtree(self._staged / str(old), ignore_errors=True)
            self._deltas = StagedDeltas(self._model, self._version, self._sizes.changed)
        else:
            wait_served(self._server.admin, MODEL, self._version, self._deltas.newest)


def delta_rows(sizes: DeltaSizes, pictures: Path | None) -> Iterator[results.Row]:
    """Measure; yields the rows of W9.

    Args:
        sizes: how much.
        pictures: folder of the PNG; None draws none.
    """
    os.sched_setaffinity(0, {LOAD_CORE})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        serving = (
            "format: 1\nexecutors: {per_worker: 1}\nqueue: {default_timeout_ms: 20000}\n"
            "catch_up: allow\nkeep_previous: 0\n"
        )
        model = FreshModel.write(folder, sizes.rows, serving)
        (folder / "server").mkdir()
        with started_server(
            model.repository, folder / "server", "--settle-s", "0", "--workers", "1",
            prefix=("taskset", "-c", str(SERVER_CORE)), timeout_s=300,
        ) as server:  # fmt: skip
            yield from _windows(model, server, sizes, pictures)


def _windows(
    model: FreshModel, server: RunningServer, sizes: DeltaSizes, pictures: Path | None
) -> Iterator[results.Row]:
    bodies = requests(server.http, sizes.rows, _BATCH, _BODIES)
    rate = _SHARE * _capacity(server, bodies, sizes.requests)
    publishing = _Publishing(model, server, sizes)
    beside: dict[tuple[Place, bool], _Seen] = {}
    for with_version, rounds in ((False, sizes.rounds), (True, sizes.versions)):
        for place in PLACES:
            beside[place, with_version] = _Seen()
        seconds = sizes.version_seconds if with_version else sizes.seconds
        for _ in range(rounds):
            steady = _window(server, bodies, rate, sizes.seconds, Recorder())
            for place in PLACES:
                place_loader(server, place)
                publishing.stage(with_version=with_version)
                one, recorder, over = beside[place, with_version], Recorder(), threading.Event()
                with ThreadPoolExecutor(1) as pool:
                    published = pool.submit(
                        publishing.run, recorder, over, with_version=with_version
                    )
                    try:
                        one.windows.append(_window(server, bodies, rate, seconds, recorder))
                    finally:
                        over.set()
                publishing.settle(with_version=with_version)
                one.deltas += published.result()
                one.steady.append(steady)
    if pictures is not None:
        lines = [("steady", beside[PLACES[0], False].steady[0])]
        for (place, with_version), seen in beside.items():
            what = "deltas and a version" if with_version else "deltas"
            lines += [(f"{what}, loader on {place}", window) for window in seen.windows[:1]]
        title = f"{sizes.changed:,} rows a second into {sizes.rows:,}, {rate:,.0f} requests/s"
        draw(pictures / "reload_deltas.png", title, lines)
    for (place, with_version), seen in beside.items():
        if seen.windows:
            yield from _rows(place, seen, rate, sizes, with_version=with_version)


def _window(
    server: RunningServer, bodies: list[bytes], rate: float, seconds: float, recorder: Recorder
) -> Timeline:
    plan = Plan(
        rate=rate,
        seconds=seconds + 1.0,
        warm_up_s=1.0,
        connections=_CONNECTIONS,
        timeout_s=_TIMEOUT_S,
    )
    with Background(plan, HttpTransport(server.http), bodies, recorder.take) as background:
        background.wait()
    return recorder.timeline()


def _capacity(server: RunningServer, bodies: list[bytes], count: int) -> float:
    plan = Plan(
        rate=_AT_ONCE, seconds=600, connections=_CONNECTIONS, timeout_s=600, max_requests=count
    )
    result = measure(plan, HttpTransport(server.http), bodies)
    if result.counts.failed:
        raise RuntimeError(f"requests failed: {result.counts.outcomes} {result.counts.statuses}")
    return result.counts.ok.count / result.elapsed_s


def _rows(
    place: Place, seen: _Seen, rate: float, sizes: DeltaSizes, *, with_version: bool
) -> Iterator[results.Row]:
    version = ", a full version beside them" if with_version else ""
    what = (
        f"{sizes.rows:,} rows, HTTP binary, N={_BATCH}, 60 % of capacity, a delta of "
        f"{sizes.changed:,} rows each second, dense weights each {sizes.dense_every} s{version}, "
        f"loader on {place}"
    )
    for name, share, goal in (("p99", 0.99, "<= 1.2"), ("p99.9", 0.999, "<= 1.5")):
        base = median([one.quantile(share) for one in seen.steady])
        yield results.measured(
            "W9",
            f"{what}: {name} against steady",
            seen.ratios(share),
            # The target has a version each five minutes; such a window has one in 40 s.
            goal=None if with_version else goal,
            yardstick=f"steady {name} {base:.2f} ms",
            figures={
                f"{name} ms": median([one.quantile(share) for one in seen.windows]),
                "requests/s": rate,
                "deltas": seen.deltas,
                "windows": len(seen.windows),
            },
            distributions=DISTRIBUTIONS,
        )
    yield results.measured(
        "W9",
        f"{what}: failed requests",
        [float(sum(one.failed for one in seen.windows))],
        goal="= 0",
        unit="requests",
        yardstick=f"{sum(len(one.ms) + one.failed for one in seen.windows):,} requests",
        distributions=DISTRIBUTIONS,
    )


def place_loader(server: RunningServer, place: Place) -> None:
    """Put the loader, and the launcher that starts it again, on a core."""
    core = LOAD_CORE if place == "a core of its own" else SERVER_CORE
    for pid, role in ServerProcesses(server.process.pid).all().items():
        if role in ("launcher", "loader"):
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), {core})
