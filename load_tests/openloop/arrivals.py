"""When requests are due. Nothing a server does moves these times: that makes a loop an open one."""

import math
import random
from collections.abc import Iterator
from typing import Literal

__all__ = ["Arrivals", "constant", "due_times", "poisson"]

Arrivals = Literal["constant", "poisson"]
"""Evenly spaced, or independent of each other with the stated mean rate."""


def due_times(arrivals: Arrivals, rate: float, seed: int) -> Iterator[int]:
    """Yield rising nanoseconds since the start, without end.

    Args:
        arrivals: which process.
        rate: requests a second, above 0.
        seed: of `poisson`; the same seed gives the same times.

    Raises:
        ValueError: the rate is not a positive number.
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError(f"rate {rate}: expected requests a second, above 0")
    return constant(rate) if arrivals == "constant" else poisson(rate, seed)


def constant(rate: float) -> Iterator[int]:
    """Yield 0, 1/rate, 2/rate ... in nanoseconds; rounding never adds up."""
    number = 0
    while True:
        yield round(number * 1e9 / rate)
        number += 1


def poisson(rate: float, seed: int) -> Iterator[int]:
    """Yield times whose distances are exponentially distributed around 1/rate, in nanoseconds."""
    draw = random.Random(seed).expovariate
    due_s = 0.0
    while True:
        due_s += draw(rate)
        yield round(due_s * 1e9)
