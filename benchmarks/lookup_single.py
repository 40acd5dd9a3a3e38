"""S1, S2 and S5: one large hashed table against what the machine can read at random.

The limit reads the same base rows of the same mapped file at the same places, and nothing else. The
composite limit adds the index lines of the same keys, as often as a hit looks at one.
"""

from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

import rows as results
from lookup_material import (
    SEED,
    Numbers,
    SegmentSpec,
    Store,
    TableSpec,
    aligned,
    check,
    keys_of,
    numbers_of,
    open_store,
    uniform,
    zipf,
)
from lookup_requests import single_table
from lookup_rounds import Seconds, best, interleaved, ratios
from lookup_run import DISTRIBUTIONS, Run
from lookup_yardstick import DISTANCES, OpenStore

__all__ = ["single_rows"]

IDS: Final = frozenset({"S1", "S2", "S5"})

_BATCH_ROWS: Final = 1000
_LIMITS: Final = {16: "<= 2.6", 32: "<= 1.85", 64: "<= 1.6"}
_MISSING_DIM: Final = 32


def single_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure the wanted ones of S1, S2 and S5."""
    rows = run.size(10_000_000, 20_000)
    batches = run.size(1000, 4)
    for dim in _LIMITS:
        if not wanted & {"S1", "S2"} and dim != _MISSING_DIM:
            continue
        store = open_store(run.scratch, SegmentSpec(TableSpec(rows, dim)))
        rng = np.random.default_rng(SEED)
        even = uniform(rng, rows, batches * _BATCH_ROWS).reshape(batches, _BATCH_ROWS)
        skewed = rng.permutation(rows)[zipf(rng, rows, even.size)].reshape(even.shape)
        if "S1" in wanted:
            yield from _limit_rows(run, store, even)
        if "S2" in wanted:
            yield _version_row(run, store, even, "uniform", "<= 1.05")
            yield _version_row(run, store, skewed, "zipf", "<= 1.08")
        if "S5" in wanted and dim == _MISSING_DIM:
            yield _missing_row(run, store, even)


def _limit_rows(run: Run, store: Store, numbers: Numbers) -> Iterator[results.Row]:
    """S1: the public call, batch by batch, against the two limits."""
    dim = store.generation.tables[0].dim
    requests = single_table(store.generation, numbers)
    requests.run(store.version)
    check("the lookup", requests.out, numbers_of(numbers[-1], dim))
    with OpenStore(store.path, store.writer.fd) as limit:
        places = numbers.ravel().astype(np.uint64)
        groups = limit.home_groups(keys_of(0, numbers.ravel()))
        rows_ahead = _best_distance(limit.gather_rows, places)
        groups_ahead = _best_distance(limit.gather_groups, groups)
        times = interleaved(
            {
                "rows": lambda: limit.gather_rows(places, rows_ahead),
                "groups": lambda: limit.gather_groups(groups, groups_ahead),
                "lookup": lambda: requests.run(store.version),
            },
            run.rounds,
        )
    probes = store.writer.stats(0).mean_probe
    composite = [
        rows + probes * groups for rows, groups in zip(times["rows"], times["groups"], strict=True)
    ]
    table = f"{store.generation.tables[0].rows:,} rows, D={dim} f32, uniform"
    figures = {
        "lookup ns/id": _ns(times["lookup"], numbers),
        "rows ns/id": _ns(times["rows"], numbers),
        "index line ns/id": _ns(times["groups"], numbers),
        "groups a hit": probes,
        "huge-page share, base": store.segment.huge_page_ratio(),
        "huge-page share, index": store.writer.huge_page_ratio(),
        "prefetch distance of the limit": float(rows_ahead),
    }
    yield results.measured(
        "S1",
        f"hashed lookup, {table}, against reading the same rows",
        ratios(times["lookup"], times["rows"]),
        goal=_LIMITS[dim],
        yardstick=f"read-only gather of rows, {figures['rows ns/id']:.1f} ns/id",
        figures=figures,
        distributions=DISTRIBUTIONS,
    )
    yield results.measured(
        "S1",
        f"share of the composite limit (index lines and row lines) reached, {table}",
        ratios(composite, times["lookup"]),
        goal=">= 0.8",
        yardstick=f"gathers of rows and of {probes:.2f} index lines, "
        f"{_ns(composite, numbers):.1f} ns/id",
        figures=figures,
        distributions=DISTRIBUTIONS,
    )


def _version_row(
    run: Run, store: Store, numbers: Numbers, distribution: str, goal: str
) -> results.Row:
    """S2: one native loop, built twice over the same pages."""
    dim = store.generation.tables[0].dim
    keys = keys_of(0, numbers.ravel()).reshape(numbers.shape)
    out = aligned(_BATCH_ROWS, dim)
    with (
        OpenStore(store.path, store.writer.fd) as versioned,
        OpenStore(store.path, store.writer.fd, "unversioned") as unversioned,
    ):
        for built in (versioned, unversioned):
            out.fill(0)
            built.look_up(keys, store.version, out)
            check("the native lookup", out, numbers_of(numbers[-1], dim))
        times = interleaved(
            {
                "versioned": lambda: versioned.look_up(keys, store.version, out),
                "unversioned": lambda: unversioned.look_up(keys, store.version, out),
            },
            run.rounds,
        )
    without = _ns(times["unversioned"], numbers)
    return results.measured(
        "S2",
        f"hashed lookup with versions against the same code without, {numbers.size:,} ids of "
        f"{store.generation.tables[0].rows:,} rows, D={dim} f32, {distribution}",
        ratios(times["versioned"], times["unversioned"]),
        goal=goal,
        yardstick=f"same pages, no version is compared, {without:.1f} ns/id",
        figures={"with versions ns/id": _ns(times["versioned"], numbers)},
        distributions=DISTRIBUTIONS,
    )


def _missing_row(run: Run, store: Store, numbers: Numbers) -> results.Row:
    """S5: keys that are nowhere against keys that are there."""
    dim = store.generation.tables[0].dim
    hits = single_table(store.generation, numbers)
    misses = single_table(store.generation, numbers + store.generation.tables[0].rows)
    misses.out.fill(1)
    misses.run(store.version)
    check("a lookup of missing keys", misses.out, np.zeros_like(misses.out))
    times = interleaved(
        {
            "hits": lambda: hits.run(store.version),
            "misses": lambda: misses.run(store.version),
        },
        run.rounds,
    )
    return results.measured(
        "S5",
        f"keys that are all missing against hits, {store.generation.tables[0].rows:,} rows, "
        f"D={dim} f32, uniform",
        ratios(times["misses"], times["hits"]),
        goal="<= 1",
        yardstick=f"hits, {_ns(times['hits'], numbers):.1f} ns/id",
        figures={"missing ns/id": _ns(times["misses"], numbers)},
        distributions=DISTRIBUTIONS,
    )


def _best_distance(
    gather: Callable[[NDArray[np.uint64], int], None], places: NDArray[np.uint64]
) -> int:
    def at(distance: int) -> Callable[[], object]:
        return lambda: gather(places, distance)

    return best({distance: at(distance) for distance in DISTANCES})


def _ns(times: list[Seconds] | list[float], numbers: Numbers) -> float:
    return median(times) / numbers.size * 1e9
