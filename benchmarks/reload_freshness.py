"""W10: how long it takes from publishing 100,000 rows to the first answer that has them."""

import http.client
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import rows as results
from anabranch_publish import Publisher
from anabranch_testing.servers import started_server
from fresh_deltas import probe_row
from fresh_model import DIM, FEATURES, MODEL, PROBE_KEY, TABLE, FreshModel, item_keys

__all__ = ["FreshnessSizes", "freshness_rows"]

DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy")
_SEED: Final = 10
_PAUSE_S: Final = 0.002
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class FreshnessSizes:
    """How much is done.

    Attributes:
        rows: of the table.
        changed: rows of a delta.
        publishes: one after the other.
    """

    rows: int = 8_000_000
    changed: int = 100_000
    publishes: int = 1000


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
    """Measure; yields the row of W10 on a local disk."""
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = FreshModel.write(folder, sizes.rows)
        (folder / "server").mkdir()
        with started_server(
            model.repository, folder / "server", "--settle-s", "0", "--workers", "1",
            prefix=("taskset", "-c", "0"), timeout_s=300,
        ) as server:  # fmt: skip
            called, acknowledged = _publishes(model, _Probe(server.http), sizes)
    yield results.measured(
        "W10",
        f"{sizes.changed:,} rows of {sizes.rows:,} on a local disk, {sizes.publishes:,} publishes "
        "one after the other: from the call of publish to the first answer with them, p99",
        [float(np.quantile(called, 0.99))],
        goal="<= 1",
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


def _publishes(
    model: FreshModel, probe: _Probe, sizes: FreshnessSizes
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return seconds from the call, and from its return, to the first new answer; (n,) each."""
    random = np.random.default_rng(_SEED)
    called, acknowledged = [], []
    with Publisher(model.folder, version=1) as publisher:
        for number in range(1, sizes.publishes + 1):
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
            seen = time.monotonic()
            called.append(seen - begin)
            acknowledged.append(seen - done)
    return np.array(called), np.array(acknowledged)
