"""W11: 10,000 idle connections beside active ones, and twice as many requests as can be served.

The server has one core, the load another. What is served beyond capacity is the goodput; what is
not must be refused fast.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import rows as results
from anabranch_testing.servers import RunningServer, started_server
from charts import Line, Panel, draw
from ctr_mlp import Material
from idle_connections import idle_connections
from open_loops import OpenLoad, capacity, run_open_loop
from openloop import Result

__all__ = ["Point", "Sizes", "overload_rows", "plot", "refusal_p99_ms"]

SERVER_CORE: Final = 0
LOAD_CORE: Final = 1
ROWS: Final = 64
DEADLINE_S: Final = 0.2
DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy", "uvicorn", "uvloop")
FACTORS: Final = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done.

    Attributes:
        rounds: of the overload.
        seconds: of one load.
        idle: connections that say nothing.
        active: connections that do.
        connections: of an overload; more than can wait in the server.
        requests: that measure the capacity.
        factors: offered load of the plot, in capacities.
    """

    rounds: int = results.ROUNDS
    seconds: float = 5.0
    idle: int = 10_000
    active: int = 100
    connections: int = 1000
    requests: int = 4000
    factors: Sequence[float] = FACTORS

    @classmethod
    def quick(cls) -> "Sizes":
        """A smoke test."""
        return cls(rounds=1, seconds=0.5, idle=200, active=10, connections=200, requests=200,
                   factors=(0.5, 2.0))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One offered load.

    Attributes:
        factor: of the capacity.
        goodput: of the capacity.
        refusal_ms: p99 of refusals, 0 without any.
    """

    factor: float
    goodput: float
    refusal_ms: float


def overload_rows(
    material: Material, scratch: Path, sizes: Sizes, plot_file: Path | None
) -> Iterator[results.Row]:
    """Start a server on one core, measure, and draw where asked.

    Args:
        material: has a binary body of 64 rows.
        scratch: for the server's folders.
        sizes: how much to do.
        plot_file: an SVG file, or None.
    """
    folder = scratch / "overload"
    folder.mkdir()
    prefix = ("taskset", "-c", str(SERVER_CORE))
    with started_server(
        material.repository, folder, "--settle-s", "0", "--workers", "1", "--models", "ctr",
        prefix=prefix,
    ) as server:  # fmt: skip
        most = capacity(_load(material, server, 64, 20.0), sizes.requests)
        yield _idle_row(material, server, sizes, most)
        yield from _refusal_rows(material, server, sizes)
        if plot_file is not None:
            most = capacity(_load(material, server, 64, 20.0), sizes.requests)
            points = [_point(material, server, sizes, most, f)[0] for f in sizes.factors]
            plot_file.parent.mkdir(parents=True, exist_ok=True)
            plot_file.write_text(plot(points, most))


def plot(points: Sequence[Point], most: float) -> str:
    """Return the SVG: goodput and the refusals' p99 over the offered load.

    Args:
        points: by rising load.
        most: capacity, in requests a second.
    """
    end = points[-1].factor
    offered = f"offered load, in capacities of {most:,.0f} requests/s"
    goodput = Line("answered in time", [(p.factor, p.goodput) for p in points])
    ideal = Line("ideal", [(0, 0), (1, 1), (end, 1)], dashed=True)
    refusals = Line("p99 of refusals", [(p.factor, p.refusal_ms) for p in points if p.refusal_ms])
    bound = Line("50 ms", [(0, 50), (end, 50)], dashed=True)
    return draw(
        [
            Panel("Goodput", offered, "capacities", [goodput, ideal]),
            Panel("Refusals", offered, "ms", [refusals, bound]),
        ]
    )


def refusal_p99_ms(result: Result) -> float:
    """Return the p99 of all answers that are not 2xx; 0 when all were."""
    return result.counts.refused.p99_ms


def _idle_row(material: Material, server: RunningServer, sizes: Sizes, most: float) -> results.Row:
    load = _load(material, server, sizes.active, 10.0)
    what = (
        f"{sizes.idle:,} connections idle, {sizes.active} active at 60 % of capacity: requests "
        "that failed on either"
    )
    try:
        with idle_connections(server.http, sizes.idle, 20.0) as idle:
            seen = run_open_loop(load, 0.6 * most, 2 * sizes.seconds)
            failed = idle.use_again(20.0)
    except OSError as error:
        return results.absent("W11", what, str(error), goal="= 0", unit="errors")
    return results.measured(
        "W11",
        what,
        [seen.counts.failed + failed],
        goal="= 0",
        unit="errors",
        yardstick=f"capacity {most:,.0f} requests/s",
        figures={"requests": seen.counts.requests, "p99 ms": seen.counts.ok.p99_ms},
        distributions=DISTRIBUTIONS,
    )


def _refusal_rows(material: Material, server: RunningServer, sizes: Sizes) -> Iterator[results.Row]:
    points, loads, capacities = [], [], []
    for _ in range(sizes.rounds):
        before = capacity(_load(material, server, 64, 20.0), sizes.requests)
        point, load = _point(material, server, sizes, before, 2.0)
        points.append(point)
        loads.append(load)
        capacities.append(before)
    what = f"CTR MLP, HTTP binary, N={ROWS}, twice the capacity, deadline {DEADLINE_S * 1e3:g} ms"
    yield results.measured(
        "W11",
        f"{what}: goodput of capacity",
        [point.goodput for point in points],
        goal=">= 0.9",
        yardstick=f"closed loop, 64 connections, {median(capacities):,.0f} requests/s",
        figures={
            "answered p99 ms": median([load.counts.ok.p99_ms for load in loads]),
            "requests": median([load.counts.requests for load in loads]),
            **_statuses(loads),
        },
        distributions=DISTRIBUTIONS,
    )
    yield results.measured(
        "W11",
        f"{what}: p99 of a refusal",
        [point.refusal_ms for point in points],
        goal="<= 50",
        unit="ms",
        yardstick="from the due time to the end of the answer, all statuses but 2xx",
        figures={
            **{
                f"p99 ms of {status}": median([_p99_ms(load, status) for load in loads])
                for status in sorted({s for load in loads for s in load.counts.latencies})
            },
            "slip p99 ms": median([load.counts.slip.p99_ms for load in loads]),
        },
        distributions=DISTRIBUTIONS,
    )


def _statuses(loads: Sequence[Result]) -> dict[str, float]:
    """How many were answered with each status but 200."""
    seen = sorted({status for load in loads for status in load.counts.latencies})
    return {
        f"answered {status}": median([load.counts.statuses.get(status, 0) for load in loads])
        for status in seen
    }


def _p99_ms(load: Result, status: int) -> float:
    summary = load.counts.latencies.get(status)
    return summary.p99_ms if summary else 0.0


def _point(
    material: Material, server: RunningServer, sizes: Sizes, most: float, factor: float
) -> tuple[Point, Result]:
    load = _load(material, server, sizes.connections, DEADLINE_S)
    seen = run_open_loop(load, factor * most, sizes.seconds)
    return Point(factor, seen.ok_per_s / most, refusal_p99_ms(seen)), seen


def _load(
    material: Material, server: RunningServer, connections: int, timeout_s: float
) -> OpenLoad:
    return OpenLoad(server.http, material.body("binary", ROWS), connections, LOAD_CORE, timeout_s)
