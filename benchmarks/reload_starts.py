"""W13 and W14: how long a start takes, a worker's restart, and a day of deltas behind a start."""

import os
import signal
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
from anabranch_publish.published_deltas import PublishedDeltas
from anabranch_server.launcher.restarts import RestartPolicy
from anabranch_testing.server_processes import ServerProcesses
from anabranch_testing.servers import RunningServer, started_server
from fresh_model import DIM, MODEL, TABLE, FreshModel, item_keys
from served_deltas import wait_served

__all__ = ["StartSizes", "start_rows"]

DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy")
_POLL_S: Final = 0.002
_PATIENCE_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class StartSizes:
    """How much is done.

    Attributes:
        rows: of the table.
        rounds: of each start.
        deltas: of the day.
        changed: rows of each of them.
        rest_s: before a worker is killed: one that ends too early again and again is started later
            and later.
    """

    rows: int = 10_000_000
    rounds: int = 5
    deltas: int = 86_400
    changed: int = 100
    rest_s: float = RestartPolicy().healthy_s + 1.0


def start_rows(sizes: StartSizes, wanted: set[str]) -> Iterator[results.Row]:
    """Measure; yields the rows of W13 and W14.

    Args:
        sizes: how much.
        wanted: of the two.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = FreshModel.write(folder, sizes.rows)
        server = folder / "server"
        server.mkdir()
        cold = _seconds_to_ready(model, server)
        warm = [_seconds_to_ready(model, server) for _ in range(sizes.rounds)]
        if "W13" in wanted:
            yield from _imported_rows(model, server, sizes, cold, warm)
        if "W14" in wanted:
            yield from _day_rows(model, server, sizes, warm)


def _imported_rows(
    model: FreshModel, folder: Path, sizes: StartSizes, cold: float, warm: list[float]
) -> Iterator[results.Row]:
    size = sum(path.stat().st_size for path in (model.folder / "1").rglob("*") if path.is_file())
    yield results.measured(
        "W13",
        f"{sizes.rows:,} rows that are imported already: from the command to ready",
        warm,
        goal="<= 3",
        unit="s",
        yardstick=f"the first start, which imports {size / 1e6:,.0f} MB: {cold:.1f} s",
        distributions=DISTRIBUTIONS,
    )
    with _running(model, folder) as server:
        restarts = [_seconds_to_restart(server, sizes.rest_s) for _ in range(sizes.rounds)]
    yield results.measured(
        "W13",
        f"{sizes.rows:,} rows, the only worker killed: from the signal to its next answer",
        restarts,
        goal="<= 1.5",
        unit="s",
        yardstick="one worker",
        distributions=DISTRIBUTIONS,
    )


def _day_rows(
    model: FreshModel, folder: Path, sizes: StartSizes, without: list[float]
) -> Iterator[results.Row]:
    begin = time.monotonic()
    _publish_day(model, sizes)
    published = time.monotonic() - begin
    begin = time.monotonic()
    with _running(model, folder) as server:
        first = time.monotonic() - begin
        wait_served(server.admin, MODEL, 1, sizes.deltas, _PATIENCE_S)
        time.sleep(5.0)  # what it tidies up beside serving
    with_deltas = [_seconds_to_ready(model, folder) for _ in range(sizes.rounds)]
    base = median(without)
    yield results.measured(
        "W14",
        f"{sizes.deltas:,} deltas of {sizes.changed:,} rows behind a start over {sizes.rows:,} "
        "rows, applied by a server before: beyond a start without them",
        [one - base for one in with_deltas],
        goal="<= 10",
        unit="s",
        yardstick=f"without them {base:.2f} s",
        figures={"s of the start that applies them all": first, "s to publish them": published},
        distributions=DISTRIBUTIONS,
    )


def _publish_day(model: FreshModel, sizes: StartSizes) -> None:
    random = np.random.default_rng(sizes.deltas)
    with _AlonePublisher(model.folder, version=1) as publisher:
        for number in range(sizes.deltas):
            delta = publisher.delta(step=number)
            keys = item_keys(random.integers(0, sizes.rows, sizes.changed))
            delta.upsert(TABLE, keys, random.standard_normal((sizes.changed, DIM), np.float32))
            delta.publish()


class _AlonePublisher(Publisher):
    """Publishes without looking for what others have published: a look takes longer and longer."""

    def _deltas(self) -> PublishedDeltas:
        known = getattr(self, "_known", None)
        if known is None:
            known = self._known = _Known(super()._deltas())
        return known


class _Known(PublishedDeltas):
    """Deltas that nobody else publishes; counts them where it would list them."""

    def __init__(self, deltas: PublishedDeltas) -> None:
        super().__init__(deltas.storage, deltas.version)
        self._newest = deltas.newest()

    def newest(self) -> int:
        """Return the number of the newest delta."""
        if self.document(self._newest + 1) is not None:
            self._newest += 1
        return self._newest


@contextmanager
def _running(model: FreshModel, folder: Path) -> Iterator[RunningServer]:
    """Serve on the first core, with the folders of the start before."""
    (folder / "ready.json").unlink(missing_ok=True)
    with started_server(
        model.repository, folder, "--settle-s", "0", "--workers", "1",
        prefix=("taskset", "-c", "0"), timeout_s=_PATIENCE_S,
    ) as server:  # fmt: skip
        yield server


def _seconds_to_ready(model: FreshModel, folder: Path) -> float:
    begin = time.monotonic()
    with _running(model, folder):
        return time.monotonic() - begin


def _seconds_to_restart(server: RunningServer, rest_s: float) -> float:
    time.sleep(rest_s)
    roles = ServerProcesses(server.process.pid).all()
    [worker] = [pid for pid, role in roles.items() if role == "worker"]
    begin = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    while not _answers(server.http):
        time.sleep(_POLL_S)
    return time.monotonic() - begin


def _answers(address: str) -> bool:
    try:
        url = f"http://{address}/v2/models/{MODEL}/ready"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
