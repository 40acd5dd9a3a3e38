"""Deltas for hours, in minutes: what a server holds, and how it looks up, after thousands of them.

A: so many deltas and so many full versions, one after the other; memory of every process over time.
B: deltas in a row of which each inserts 1 % of the keys and deletes as many: what the store holds,
how full its index is, and how long requests take, from the first tenth to the last.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

import rows as results
from anabranch_publish import Publisher
from anabranch_testing.server_processes import ServerProcesses, resources_of
from anabranch_testing.servers import RunningServer, started_server
from fresh_model import DIM, FEATURES, MODEL, TABLE, FreshModel, dense_weights, item_keys, request
from holdings import Holdings, growth_rows
from openloop import HttpTransport, Plan
from openloop.background import measure
from served_deltas import wait_served

DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy")
_SERVING: Final = "format: 1\nexecutors: {per_worker: 1}\ncatch_up: allow\nkeep_previous: 1\n"
_FIRST_KEY: Final = 1 << 32
_BATCH: Final = 64
_JUDGED: Final = (
    ("bytes", "memory of the table"),
    ("load", "load of the index"),
    ("probe", "groups that a hit takes"),
    ("request_ms", "time of a request"),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done.

    Attributes:
        rows: of the table.
        deltas: of A.
        versions: of A, spread over its deltas.
        changed: rows of a delta of A.
        churned: deltas of B.
        window: requests that time the lookups of B, ten times.
    """

    rows: int = 100_000
    deltas: int = 1000
    versions: int = 100
    changed: int = 2000
    churned: int = 10_000
    window: int = 2000


def main() -> None:
    """Measure, print one table, write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each; never published")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--only", choices=("memory", "churn"), action="append")
    parser.add_argument("--pictures", type=Path, help="folder for PNG files")
    options = parser.parse_args()
    sizes = Sizes(2000, 30, 3, 50, 40, 50) if options.quick else Sizes()
    wanted: set[str] = set(options.only or ("memory", "churn"))
    os.sched_setaffinity(0, {1})
    measured: list[results.Row] = []
    if "memory" in wanted:
        measured += _memory_rows(sizes, options.pictures)
    if "churn" in wanted:
        measured += _churn_rows(sizes)
    results.show(measured)
    if options.json is not None:
        file = results.ResultFile(
            command=results.command(), quick=options.quick, rows=tuple(measured)
        )
        results.write(options.json, file)


# --- A: memory -----------------------------------------------------------------------------------


def _memory_rows(sizes: Sizes, pictures: Path | None) -> Iterator[results.Row]:
    with tempfile.TemporaryDirectory() as scratch:
        model = FreshModel.write(Path(scratch), sizes.rows, _SERVING)
        with _served(model, Path(scratch) / "server") as server:
            looks = _Looks(server)
            version, random = 1, np.random.default_rng(1)
            each = max(1, sizes.deltas // sizes.versions)
            for _ in range(0, sizes.deltas, each):
                _publish(model, server, version, each, sizes, random, looks)
                version += 1
                model.publish(version, model.folder)
                wait_served(server.admin, MODEL, version, 0)
                looks.look()
                if version > 3:
                    shutil.rmtree(model.folder / str(version - 3))
    what = f"{sizes.deltas:,} deltas of {sizes.changed:,} rows and {sizes.versions} full versions"
    yield from growth_rows("X12", what, looks.holdings.growth(), DISTRIBUTIONS)
    if pictures is not None:
        looks.draw(pictures / "delta_memory.png", what)


def _publish(
    model: FreshModel,
    server: RunningServer,
    version: int,
    count: int,
    sizes: Sizes,
    random: np.random.Generator,
    looks: "_Looks",
) -> None:
    """Publish deltas of a version one after the other, every other one with dense weights."""
    numbers = np.arange(sizes.rows)
    with Publisher(model.folder, version=version) as publisher:
        for number in range(1, count + 1):
            delta = publisher.delta(step=number)
            keys = item_keys(random.choice(numbers, sizes.changed, replace=False))
            delta.upsert(TABLE, keys, random.standard_normal((sizes.changed, DIM), np.float32))
            if number % 2 == 0:
                delta.dense(dense_weights(number))
            delta.publish()
            wait_served(server.admin, MODEL, version, number)
            looks.look()


class _Looks:
    """Memory of every process over time."""

    def __init__(self, server: RunningServer) -> None:
        self._processes = ServerProcesses(server.process.pid)
        self.holdings = Holdings(self._processes)
        self._begin = time.monotonic()
        self._seen: dict[str, list[tuple[float, float]]] = {}

    def look(self) -> None:
        """Note what there is now."""
        self.holdings.look()
        held: dict[str, float] = {}
        for pid, role in self._processes.all().items():
            found = resources_of(pid)
            if found is not None:
                held[role] = held.get(role, 0.0) + found.held_bytes / (1 << 20)
        at = time.monotonic() - self._begin
        for name, mib in held.items():
            self._seen.setdefault(name, []).append((at, mib))

    def draw(self, path: Path, title: str) -> None:
        """Write a PNG."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, panel = pyplot.subplots(figsize=(9, 4))
        for name, points in sorted(self._seen.items()):
            panel.plot([at for at, _ in points], [mib for _, mib in points], label=name, lw=1)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("seconds")
        panel.set_ylabel("MiB held")
        panel.set_title(title, fontsize=10)
        panel.legend()
        figure.tight_layout()
        figure.savefig(path, dpi=110)
        pyplot.close(figure)


# --- B: churn ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Standing:
    """The store and its lookups at one moment.

    Attributes:
        bytes: of the table, as the admin port says them.
        load: of its index.
        probe: groups that a hit takes.
        request_ms: mean of requests one after the other.
    """

    bytes: float
    load: float
    probe: float
    request_ms: float


def _churn_rows(sizes: Sizes) -> Iterator[results.Row]:
    with tempfile.TemporaryDirectory() as scratch:
        model = FreshModel.write(Path(scratch), sizes.rows, _SERVING)
        with _served(model, Path(scratch) / "server") as server:
            stands = _churned(model, server, sizes)
    first, last = stands[1 : 1 + len(stands) // 4], stands[-(len(stands) // 4) :]
    what = (
        f"{sizes.churned:,} deltas in a row that each insert and delete 1 % of {sizes.rows:,} keys"
    )
    for name, unit in _JUDGED:
        early = median([getattr(one, name) for one in first])
        late = median([getattr(one, name) for one in last])
        yield results.measured(
            "X13",
            f"{what}: {unit}, last quarter against the first",
            [late / early],
            goal="<= 1.1",
            unit="of the first",
            yardstick=f"{early:,.4g} at first",
            figures={"last": late},
            distributions=DISTRIBUTIONS,
        )


def _churned(model: FreshModel, server: RunningServer, sizes: Sizes) -> list[_Standing]:
    one_percent = max(1, sizes.rows // 100)
    random = np.random.default_rng(2)
    drawn = [item_keys(random.integers(0, sizes.rows, _BATCH)) for _ in range(FEATURES)]
    asked = request(server.http, drawn)
    stands = []
    with Publisher(model.folder, version=1) as publisher:
        for number in range(1, sizes.churned + 1):
            delta = publisher.delta(step=number)
            keys = _FIRST_KEY + one_percent * number + np.arange(one_percent)
            delta.upsert(TABLE, keys, random.standard_normal((one_percent, DIM), np.float32))
            if number > 3:
                delta.delete(TABLE, keys - 3 * one_percent)
            delta.publish()
            if number % max(1, sizes.churned // 40) == 0:
                wait_served(server.admin, MODEL, 1, number)
                stands.append(_standing(server, asked, sizes.window))
    return stands


def _standing(server: RunningServer, asked: bytes, count: int) -> _Standing:
    plan = Plan(rate=1e9, seconds=600, connections=1, timeout_s=600, max_requests=count)
    seen = measure(plan, HttpTransport(server.http), [asked])
    service_ms = seen.elapsed_s * 1e3 / max(1, seen.counts.ok.count)
    url = f"http://{server.admin}/admin/v1/models/{MODEL}/tables"
    with urllib.request.urlopen(url, timeout=30) as answer:
        [table] = json.loads(answer.read())["tables"]
    return _Standing(table["bytes"], table["load"], table["mean_probe"], service_ms)


@contextmanager
def _served(model: FreshModel, folder: Path) -> Iterator[RunningServer]:
    """Serve on the first core."""
    folder.mkdir()
    with started_server(
        model.repository, folder, "--settle-s", "0", "--workers", "1",
        prefix=("taskset", "-c", "0"), timeout_s=300,
    ) as server:  # fmt: skip
        yield server


if __name__ == "__main__":
    main()
