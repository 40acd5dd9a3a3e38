"""The yardstick of the serving benchmarks: ONNX Runtime in a bare loop, one thread on one core.

No server can answer more single requests than this loop runs without merging them. Run as
`python benchmarks/bare_loop.py MODEL --rows 256 --seconds 2 --core 0`; prints one JSON object.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ctr_mlp import INPUT, make_rows

__all__ = ["Loop", "measure"]

_WARM_UP_RUNS = 5


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """What one loop reached.

    Attributes:
        rows: rows in each run.
        runs_per_s: runs by the time spent inside them.
        p50_ms: median time of a run.
        p99_ms: 99th percentile of it.
    """

    rows: int
    runs_per_s: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    """Pin this process to the core, run the loop, print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--core", type=int, help="default: wherever this process may run")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    loop = measure(options.model, {INPUT: make_rows(options.rows)}, options.seconds)
    sys.stdout.write(msgspec.json.encode(loop).decode() + "\n")


def measure(model: Path, inputs: Mapping[str, NDArray[np.float32]], seconds: float) -> Loop:
    """Run `model` on `inputs` over and over for `seconds`, in the calling thread.

    The session gets what the server's executors get: one intra-op thread and no spinning.

    Args:
        model: an ONNX file.
        inputs: name -> (N, ...) of every input.
        seconds: how long to measure, after a few runs that are not counted.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = dict(inputs)
    for _ in range(_WARM_UP_RUNS):
        session.run(None, feeds)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    return Loop(
        rows=len(next(iter(feeds.values()))),
        runs_per_s=len(times) / sum(times),
        p50_ms=float(p50),
        p99_ms=float(p99),
    )


if __name__ == "__main__":
    main()
