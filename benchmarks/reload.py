"""Reloads: under load (W9), their freshness (W10), a thousand (W12), and starts (W13, W14).

W9 holds 60 % of capacity by open loop and compares a window in which versions or deltas are
published with one in which nothing is, with the loader on a core of its own and on the server's.
W12 publishes versions as fast as they are served, and looks at what every process holds.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import rows as results
from anabranch_testing.server_processes import ServerProcesses
from anabranch_testing.servers import RunningServer, started_server
from ctr_mlp import MODEL, Material, write
from holdings import Holdings, growth_rows
from new_versions import NewVersions
from open_loops import OpenLoad, capacity, run_open_loop
from openloop import Background, HttpTransport, Plan, Result, post
from reload_deltas import PLACES, DeltaSizes, Place, delta_rows, place_loader
from reload_freshness import FreshnessSizes, freshness_rows
from reload_starts import StartSizes, start_rows

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
ROWS: Final = 16
RETENTION_S: Final = 330.0
"""A worker keeps the series of an unloaded version for 300 s: only then it holds as many as ever.
Reloads of that time are beside those that are counted."""

SHARE: Final = 0.6
DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop")

_ALL: Final = ("W9", "W10", "W12", "W13", "W14")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done.

    Attributes:
        rounds: of W9.
        seconds: of one window.
        every_s: between two versions of a window.
        reloads: of W12.
        requests: that measure the capacity.
    """

    rounds: int = results.ROUNDS
    seconds: float = 12.0
    every_s: float = 3.0
    reloads: int = 1000
    requests: int = 8000


@dataclass
class _Seen:
    """Windows of one place of the loader."""

    p99: list[float] = field(default_factory=list)
    p999: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    windows: list[Result] = field(default_factory=list)
    versions: int = 0


def main() -> None:
    """Measure, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--only", choices=_ALL, action="append")
    parser.add_argument("--reloads", type=int, help="of W12, instead of 1,000")
    parser.add_argument("--pictures", type=Path, help="folder for PNG files")
    options = parser.parse_args()
    sizes = Sizes(1, 2.0, 1.0, 6, 500) if options.quick else Sizes()
    reloads = options.reloads or sizes.reloads
    wanted: set[str] = set(options.only or _ALL)
    os.sched_setaffinity(0, {LOAD_CORE})
    measured: list[results.Row] = []
    if wanted & {"W9", "W12"}:
        measured += _version_rows(wanted, sizes, reloads)
    if "W9" in wanted:
        deltas = DeltaSizes(20_000, 500, 1, 3.0, 2, 1, 3.0, 500) if options.quick else DeltaSizes()
        measured += delta_rows(deltas, options.pictures)
    if "W10" in wanted:
        fresh = FreshnessSizes(20_000, 500, 5, 5) if options.quick else FreshnessSizes()
        measured += freshness_rows(fresh)
    if wanted & {"W13", "W14"}:
        starts = StartSizes(20_000, 1, 30, 10, 0.0) if options.quick else StartSizes()
        measured += start_rows(starts, wanted)
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


def _version_rows(wanted: set[str], sizes: Sizes, reloads: int) -> list[results.Row]:
    """Measure full versions: W9 and W12, as far as they are wanted."""
    measured: list[results.Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        material = write(Path(scratch), [ROWS])
        (material.repository / MODEL / "serving.yaml").write_text(
            "format: 1\nexecutors: {per_worker: 1}\nqueue: {default_timeout_ms: 20000}\n"
        )
        (Path(scratch) / "server").mkdir()
        with started_server(
            material.repository, Path(scratch) / "server", "--settle-s", "0", "--workers", "1",
            "--poll-s", "0.1",
            prefix=("taskset", "-c", str(SERVER_CORE)),
        ) as server:  # fmt: skip
            versions = NewVersions(material.repository / MODEL, material.graph, server.admin)
            if "W9" in wanted:
                measured += _window_rows(material, server, versions, sizes)
            if "W12" in wanted:
                measured += _endurance_rows(material, server, versions, reloads, sizes.requests)
    return measured


# --- W9 -------------------------------------------------------------------------------------------


def _window_rows(
    material: Material, server: RunningServer, versions: NewVersions, sizes: Sizes
) -> Iterator[results.Row]:
    load = OpenLoad(server.http, material.body("binary", ROWS), 64, LOAD_CORE, 20.0)
    rate = SHARE * capacity(load, sizes.requests)
    seen = {place: _Seen() for place in PLACES}
    steady: list[Result] = []
    for _ in range(sizes.rounds):
        steady.append(run_open_loop(load, rate, sizes.seconds))
        for place in PLACES:
            place_loader(server, place)
            window = _window(load, rate, versions, sizes, seen[place])
            base, disturbed = steady[-1].counts.ok, window.counts.ok
            seen[place].p99.append(disturbed.p99_ms / base.p99_ms if base.p99_ms else 0.0)
            seen[place].p999.append(disturbed.p999_ms / base.p999_ms if base.p999_ms else 0.0)
    for place in PLACES:
        yield from _place_rows(place, seen[place], steady, rate, sizes)


def _window(
    load: OpenLoad, rate: float, versions: NewVersions, sizes: Sizes, seen: _Seen
) -> Result:
    """One window with a new version each few seconds; ends when the last one is served."""
    versions.stage(round(sizes.seconds / sizes.every_s) + 2)
    over = threading.Event()

    def publish() -> None:
        while not over.wait(sizes.every_s):
            versions.publish()
            seen.versions += 1

    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish)
        try:
            window = run_open_loop(load, rate, sizes.seconds)
        finally:
            over.set()
        publishing.result()
    versions.wait_served()
    seen.windows.append(window)
    seen.failed.append(window.counts.failed)
    return window


def _place_rows(
    place: Place, seen: _Seen, steady: list[Result], rate: float, sizes: Sizes
) -> Iterator[results.Row]:
    what = (
        f"CTR MLP, HTTP binary, N={ROWS}, 60 % of capacity, a full version each "
        f"{sizes.every_s:g} s, loader on {place}"
    )
    yield results.measured(
        "W9",
        f"{what}: p99 against steady",
        seen.p99,
        goal="<= 1.2",
        yardstick=f"steady p99 {median([one.counts.ok.p99_ms for one in steady]):.2f} ms",
        figures={
            "p99 ms": median([one.counts.ok.p99_ms for one in seen.windows]),
            "requests/s": rate,
            "versions": seen.versions,
        },
        distributions=DISTRIBUTIONS,
    )
    yield results.measured(
        "W9",
        f"{what}: p99.9 against steady",
        seen.p999,
        goal="<= 1.5",
        yardstick=f"steady p99.9 {median([one.counts.ok.p999_ms for one in steady]):.2f} ms",
        figures={"p99.9 ms": median([one.counts.ok.p999_ms for one in seen.windows])},
        distributions=DISTRIBUTIONS,
    )
    yield results.measured(
        "W9",
        f"{what}: failed requests",
        [sum(seen.failed)],
        goal="= 0",
        unit="requests",
        yardstick=f"{sum(one.counts.requests for one in seen.windows):,} requests",
        distributions=DISTRIBUTIONS,
    )


# --- W12 ------------------------------------------------------------------------------------------


def _endurance_rows(
    material: Material,
    server: RunningServer,
    versions: NewVersions,
    reloads: int,
    requests: int,
) -> Iterator[results.Row]:
    body = material.body("binary", ROWS)
    load = OpenLoad(server.http, body, 64, LOAD_CORE, 20.0)
    rate = SHARE * capacity(load, requests)
    place_loader(server, "a core of its own")  # so that a thousand take minutes
    request = post(server.http, body.target, body.path.read_bytes(), body.headers)
    plan = Plan(rate=rate, seconds=36_000, connections=64, timeout_s=20.0)
    holdings = Holdings(ServerProcesses(server.process.pid))
    with Background(plan, HttpTransport(server.http), [request]) as background:
        begin = time.monotonic()
        while time.monotonic() - begin < (RETENTION_S if reloads >= 1000 else 0.0):
            versions.publish()
            versions.wait_served()
            versions.remove_old(keep=4)
        begin = time.monotonic()
        for number in range(reloads):
            versions.publish()
            versions.wait_served()
            versions.remove_old(keep=4)
            if number % max(1, reloads // 200) == 0:
                holdings.look()
        seconds = time.monotonic() - begin
        seen = background.finish()
    what = f"CTR MLP, HTTP binary, N={ROWS}, 60 % of capacity, {reloads:,} full reloads"
    yield results.measured(
        "W12",
        f"{what}: failed requests",
        [seen.counts.failed],
        goal="= 0",
        unit="requests",
        yardstick=f"{seen.counts.requests:,} requests at {rate:,.0f}/s",
        figures={"seconds a reload": seconds / reloads, "p99 ms": seen.counts.ok.p99_ms},
        distributions=DISTRIBUTIONS,
    )
    yield from growth_rows("W12", what, holdings.growth(), DISTRIBUTIONS)


if __name__ == "__main__":
    main()
