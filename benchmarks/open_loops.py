"""Open-loop loads: the generator of `load_tests/openloop` in a process of its own, and searches.

A rate is held whatever the server does, so latencies at a rate can be compared; a closed loop (see
`loads.py`) slows down with the server and measures capacity alone.
"""

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ctr_mlp import Body
from openloop import Result

__all__ = ["OpenLoad", "capacity", "highest_rate", "run_open_loop"]

_FOLDER: Final = Path(__file__).resolve().parents[1] / "load_tests"
_AT_ONCE: Final = 1e9


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """What to send, but for how fast.

    Attributes:
        address: `host:port` of the server's HTTP door.
        body: what to POST, and where.
        connections: kept connections.
        core: the core that the generator is pinned to; None lets it run anywhere.
        timeout_s: from a request's due time; also sent to the server as its deadline.
    """

    address: str
    body: Body
    connections: int
    core: int | None
    timeout_s: float


def run_open_loop(load: OpenLoad, rate: float, seconds: float, *options: str) -> Result:
    """Send `load` at `rate` requests a second; half a second more comes first and is not counted.

    Raises:
        RuntimeError: the generator failed; the message has its words.
    """
    warm_up_s = min(0.5, seconds / 2)
    return _run(
        load, "--rate", str(rate), "--seconds", str(seconds + warm_up_s),
        "--warm-up", str(warm_up_s), *options,
    )  # fmt: skip


def capacity(load: OpenLoad, requests: int) -> float:
    """Return how many of `requests` that are all due at once are answered a second.

    Every connection sends its next request when the last one was answered: a closed loop.

    Raises:
        RuntimeError: the generator failed, or a request did.
    """
    result = _run(load, "--rate", str(_AT_ONCE), "--seconds", "600", "--requests", str(requests))
    if result.counts.failed:
        raise RuntimeError(f"requests failed: {result.counts.outcomes} {result.counts.statuses}")
    return result.counts.ok.count / result.elapsed_s


def highest_rate(
    is_good: Callable[[float], bool], low: float, high: float, precision: float = 0.03
) -> float:
    """Return the highest rate that is good, by bisection of the logarithm; 0 when `low` is not.

    Args:
        is_good: tries a rate.
        low: a rate that should be good.
        high: a rate that should not.
        precision: relative distance at which the search ends.
    """
    if not is_good(low):
        return 0.0
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        if is_good(middle):
            low = middle
        else:
            high = middle
    return low


def _run(load: OpenLoad, *options: str) -> Result:
    pin = [] if load.core is None else ["taskset", "-c", str(load.core)]
    headers = {**load.body.headers, "Anabranch-Timeout-Ms": str(round(load.timeout_s * 1e3))}
    answer = subprocess.run(
        [
            *pin, sys.executable, "-m", "openloop", f"http://{load.address}{load.body.target}",
            "--body", str(load.body.path), "--connections", str(load.connections),
            "--timeout", str(load.timeout_s + 1), "--json", "-", *options,
            *(f"--header={name}: {value}" for name, value in headers.items()),
        ],
        cwd=_FOLDER, capture_output=True, check=False,
    )  # fmt: skip
    if answer.returncode != 0:
        raise RuntimeError(f"openloop failed: {answer.stderr.decode()[-500:]}")
    return msgspec.json.decode(answer.stdout, type=Result)
