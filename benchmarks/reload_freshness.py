"""W10: how long it takes from publishing 100,000 rows to the first answer that has them."""

import http.client
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

import rows as results
from anabranch_publish import Publisher
from anabranch_testing.servers import RunningServer, started_server
from fresh_deltas import probe_row
from fresh_model import DIM, FEATURES, MODEL, PROBE_KEY, TABLE, FreshModel, item_keys
from object_store import object_store

__all__ = ["FreshnessSizes", "freshness_rows"]

DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy")
_SEED: Final = 10
_PAUSE_S: Final = 0.002
_TIMEOUT_S: Final = 60.0
_SERVING: Final = "format: 1\nqueue: {default_timeout_ms: 20000}\n"


@dataclass(frozen=True, slots=True)
class FreshnessSizes:
    """How much is done.

    Attributes:
        rows: of the table.
        changed: rows of a delta.
        publishes: one after the other, on a local disk.
        remote_publishes: the same into an object store.
    """

    rows: int = 8_000_000
    changed: int = 100_000
    publishes: int = 1000
    remote_publishes: int = 1000


class _Probe:
    """Asks for the row of the probe, over one kept connection."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=20)
        inputs = [
            {"name": f"item_{index}", "shape": [1], "datatype": "INT64", "data": [PROBE_KEY]}
            for index in range(FEATURES)
        ]
        self._body = json.dumps({"inputs": inputs, "outputs": [{"name": "stamp"}]})

    def stamp(self) -> float:
        """Return the number of the newest delta that answers."""
        self._connection.request("POST", f"/v2/models/{MODEL}/infer", self._body)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {data[:300]!r}")
        return float(json.loads(data)["outputs"][0]["data"][0])


def freshness_rows(sizes: FreshnessSizes) -> Iterator[results.Row]:
    """Measure; yields the rows of W10: on a local disk, and from an object store."""
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = FreshModel.write(folder, sizes.rows, _SERVING)
        with (
            _served(str(model.repository), folder / "local") as server,
            Publisher(model.folder, version=1) as publisher,
        ):
            seen = _publishes(publisher, _Probe(server.http), sizes, sizes.publishes)
            yield _row("on a local disk", "<= 1", sizes, seen)
        shutil.rmtree(model.folder / "1" / "deltas")
        with object_store(1) as store:
            store.copy(model.repository, "live")
            url = f"{store.url}/live"
            with (
                _served(url, folder / "remote") as server,
                Publisher(
                    f"{url}/{MODEL}", version=1, notify=f"http://{server.admin}"
                ) as publisher,
            ):
                seen = _publishes(publisher, _Probe(server.http), sizes, sizes.remote_publishes)
                yield _row("in an S3-compatible store, server notified", "<= 2", sizes, seen)


def _served(repository: str, folder: Path) -> AbstractContextManager[RunningServer]:
    folder.mkdir()
    return started_server(
        repository, folder, "--settle-s", "0", "--workers", "1",
        prefix=("taskset", "-c", "0"), timeout_s=600,
    )  # fmt: skip


def _row(where: str, goal: str, sizes: FreshnessSizes, seen: "_Seen") -> results.Row:
    called, acknowledged = np.array(seen.called), np.array(seen.acknowledged)
    return results.measured(
        "W10",
        f"{sizes.changed:,} rows of {sizes.rows:,} {where}, {len(called):,} publishes one after "
        "the other: from the call of publish to the first answer with them, p99",
        [float(np.quantile(called, 0.99))],
        goal=goal,
        unit="s",
        yardstick=f"publish itself {np.median(called - acknowledged):.3f} s at the median",
        figures={
            "median s": float(np.median(called)),
            "max s": float(called.max()),
            "median s from the acknowledgement": float(np.median(acknowledged)),
            "p99 s from the acknowledgement": float(np.quantile(acknowledged, 0.99)),
        },
        distributions=DISTRIBUTIONS,
    )


@dataclass(slots=True)
class _Seen:
    """Seconds to the first new answer, of each publish: from its call, and from its return."""

    called: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)


def _publishes(publisher: Publisher, probe: _Probe, sizes: FreshnessSizes, count: int) -> _Seen:
    random, seen = np.random.default_rng(_SEED), _Seen()
    for number in range(1, count + 1):
        numbers = random.choice(sizes.rows, sizes.changed, replace=False)
        values = random.standard_normal((sizes.changed, DIM), np.float32)
        delta = publisher.delta(step=number)
        delta.upsert(TABLE, item_keys(numbers), values)
        delta.upsert(TABLE, np.array([PROBE_KEY]), probe_row(number))
        begin = time.monotonic()
        delta.publish()
        done = time.monotonic()
        while probe.stamp() < number:
            if time.monotonic() - done > _TIMEOUT_S:
                raise TimeoutError(f"delta {number} does not answer")
            time.sleep(_PAUSE_S)
        answered = time.monotonic()
        seen.called.append(answered - begin)
        seen.acknowledged.append(answered - done)
    return seen
