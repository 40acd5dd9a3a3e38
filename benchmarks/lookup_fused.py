"""S3, S4 and S11: one request over 26 tables in one call, against what users call today.

Competitors get row numbers for nothing; ours are told 64-bit keys, or row numbers in dense-id mode.
All compute the same answers, which is checked before anything is timed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

import rows as results
from lookup_material import (
    SEED,
    SegmentSpec,
    Store,
    TableSpec,
    aligned,
    check,
    keys_of,
    numbers_of,
    open_store,
    zipf,
)
from lookup_requests import Bags, Requests, bags, plan_of
from lookup_rounds import Seconds, interleaved, ratios
from lookup_run import DISTRIBUTIONS, Run
from peers.store import Missing, pooling

__all__ = ["IDS", "fused_rows"]

IDS: Final = frozenset({"S3", "S4", "S11", "X10"})

HASHED: Final = "hashed keys"
DENSE: Final = "dense ids"

_TABLES: Final = 26
_DIM: Final = 32
_MEAN_BAG: Final = 20
_PEERS: Final = ("torch", "fbgemm-gpu-cpu", *DISTRIBUTIONS)


@dataclass(frozen=True, slots=True)
class Case:
    """One size of request.

    Attributes:
        rows: of a request.
        mean_bag: ids a bag on average; None for one id.
        requests: how many different ones a round answers.
        against_fbgemm: goal of the hashed store.
        dense_against_fbgemm: goal of dense-id mode; None where only shown.
        against_torch: goal of the hashed store; None where only shown.
    """

    rows: int
    mean_bag: int | None
    requests: int
    against_fbgemm: str
    dense_against_fbgemm: str | None = None
    against_torch: str | None = None

    def words(self) -> str:
        """How rows of the report say it."""
        length = "one id" if self.mean_bag is None else f"bags of {self.mean_bag} ids on average"
        return f"N={self.rows}, {length}"


CASES: Final = (
    Case(1, None, 1000, ">= 14", against_torch=">= 60"),
    Case(100, None, 64, ">= 1.95", against_torch=">= 3.5"),
    Case(1000, None, 16, ">= 1.2", against_torch=">= 1.2"),
    Case(100, _MEAN_BAG, 16, ">= 0.9", dense_against_fbgemm=">= 1.1"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one case showed.

    Attributes:
        case: it.
        rows: of each table.
        requests: what was asked.
        ours: requests of the hashed store.
        times: who answered -> seconds for all requests, round by round.
        absent: who did not -> why.
    """

    case: Case
    rows: int
    requests: Sequence[Bags]
    ours: Requests
    times: Mapping[str, list[Seconds]]
    absent: Mapping[str, str]

    def title(self) -> str:
        """How rows of the report begin."""
        return f"{_TABLES} tables of {self.rows:,} rows, D={_DIM} f32, {self.case.words()}"

    def us(self, name: str) -> float:
        """Median time of one request, in microseconds."""
        return median(self.times[name]) / len(self.requests) * 1e6

    def against(self, peer: str, ours: str, id: str, words: str, goal: str | None) -> results.Row:
        """Return the row of the peer's time over ours."""
        what = f"{self.title()}, {ours}: {words}'s time over ours"
        if peer in self.absent:
            return results.absent(id, what, self.absent[peer], goal=goal)
        return results.measured(
            id,
            what,
            ratios(self.times[peer], self.times[ours]),
            goal=goal,
            yardstick=f"{words}, dense ids, {self.us(peer):.1f} us a request",
            figures={"ours us": self.us(ours)},
            distributions=_PEERS,
        )


def fused_rows(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    """Measure the wanted ones of S3, S4, X10 (other peers) and S11."""
    if wanted & {"S3", "S4", "X10"}:
        yield from _compared(run, wanted)
    if "S11" in wanted:
        yield from _call_rows(run)


def _compared(run: Run, wanted: frozenset[str]) -> Iterator[results.Row]:
    rows = run.size(100_000, 2000)
    hashed = open_store(run.scratch, SegmentSpec(TableSpec(rows, _DIM), _TABLES))
    dense = open_store(run.scratch, SegmentSpec(TableSpec(rows, _DIM, keys="dense_id"), _TABLES))
    weights = [aligned(rows, _DIM) for _ in range(_TABLES)]
    for table in weights:
        table[:] = numbers_of(np.arange(rows), _DIM)
    for case in CASES:
        seen = _measure(run, case, {HASHED: hashed, DENSE: dense}, weights)
        if "S3" in wanted:
            words = "fbgemm TBE f32"
            yield seen.against("fbgemm", HASHED, "S3", words, case.against_fbgemm)
            yield seen.against("fbgemm", DENSE, "S3", words, case.dense_against_fbgemm)
        if "S4" in wanted and case.against_torch is not None:
            words = "torch EmbeddingBag for each table, aligned"
            yield seen.against("torch", HASHED, "S4", words, case.against_torch)
        if "X10" in wanted:
            yield seen.against("take", HASHED, "X10", "numpy.take for each table, aligned", None)
            if case.mean_bag is None:
                yield _dict_row(run, seen, weights)


def _measure(
    run: Run, case: Case, stores: Mapping[str, Store], weights: Sequence[NDArray[np.float32]]
) -> Seen:
    """Let everybody answer the same requests in turn."""
    tables = range(_TABLES)
    rows = len(weights[0])
    requests = draw(case, rows, run.size(case.requests, 2))
    bound = {}
    answers: dict[str, pooling.Answer] = {}
    for name, store in stores.items():
        plan = plan_of(store.generation, tables, in_bags=case.mean_bag is not None)
        bound[name] = bags(plan, tables, requests, case.rows, _TABLES * _DIM, dense=name == DENSE)
        answers[name] = partial(_run, bound[name], store.version)
    absent = _add_peers(answers, weights, requests, case.rows)
    expected = pooling.take(weights, requests, case.rows)().copy()
    for name, answer in answers.items():
        # Sums of quarters are exact in f32, in any order.
        check(name, answer(), expected)
    times = interleaved(answers, run.rounds)
    return Seen(case, rows, requests, bound[HASHED], times, absent)


def draw(case: Case, rows: int, count: int) -> list[Bags]:
    """Return `count` requests: popular rows often, bags of 1 to 39 ids."""
    rng = np.random.default_rng(SEED)
    drawn = []
    for _ in range(count):
        if case.mean_bag is None:
            drawn.append(Bags(tuple(zipf(rng, rows, case.rows) for _ in range(_TABLES))))
            continue
        lengths = rng.integers(1, 2 * case.mean_bag, (_TABLES, case.rows))
        offsets = tuple(np.concatenate([[0], np.cumsum(one)]) for one in lengths)
        drawn.append(Bags(tuple(zipf(rng, rows, int(ends[-1])) for ends in offsets), offsets))
    return drawn


def _run(requests: Requests, version: int) -> NDArray[np.float32]:
    requests.run(version)
    return requests.out


def _add_peers(
    answers: dict[str, pooling.Answer],
    weights: Sequence[NDArray[np.float32]],
    requests: Sequence[Bags],
    rows: int,
) -> dict[str, str]:
    """Add the peers that are here; return why others are not."""
    absent = {}
    makers = {"fbgemm": pooling.fbgemm, "torch": pooling.torch_bags, "take": pooling.take}
    for name, make in makers.items():
        try:
            answers[name] = make(weights, requests, rows)
        except Missing as missing:
            absent[name] = str(missing)
    return absent


def _dict_row(run: Run, seen: Seen, weights: Sequence[NDArray[np.float32]]) -> results.Row:
    """A dict of keys, which is too slow to answer all requests in every round."""
    some = seen.requests[: max(1, 4000 // seen.case.rows)]
    keys = [
        [keys_of(table, numbers) for table, numbers in enumerate(request.numbers)]
        for request in some
    ]
    places = [
        dict(zip(keys_of(table, np.arange(seen.rows)).tolist(), range(seen.rows), strict=True))
        for table in range(_TABLES)
    ]
    ours = Requests(seen.ours.plan, seen.ours.arguments[: len(some)], seen.ours.rows, seen.ours.out)
    times = interleaved(
        {
            "dict": pooling.dict_and_take(weights, places, keys, seen.case.rows),
            "ours": partial(ours.run, 1),
        },
        run.rounds,
    )
    us = {name: median(one) / len(some) * 1e6 for name, one in times.items()}
    return results.measured(
        "X10",
        f"{seen.title()}, {HASHED}: a Python dict and take for each table, its time over ours",
        ratios(times["dict"], times["ours"]),
        yardstick=f"dict and take, {us['dict']:.1f} us a request",
        figures={"ours us": us["ours"]},
        distributions=_PEERS,
    )


def _call_rows(run: Run) -> Iterator[results.Row]:
    """S11: one row, always the same, so that the rows of the tables are in cache."""
    rows, dim = 1000, 16
    store = open_store(run.scratch, SegmentSpec(TableSpec(rows, dim), _TABLES))
    counts = (1, _TABLES, 4 * _TABLES)
    calls: dict[int, Callable[[], None]] = {}
    for features in counts:
        tables = [feature % _TABLES for feature in range(features)]
        request = Bags(tuple(np.array([feature]) for feature in range(features)))
        plan = plan_of(store.generation, tables)
        bound = bags(plan, tables, [request], 1, features * dim)
        calls[features] = partial(bound.plan.run, bound.arguments[0], store.version, 1)
    times = interleaved({str(count): call for count, call in calls.items()}, run.rounds)
    for features in counts:
        yield results.measured(
            "S11",
            f"one fused call from Python, N=1, {features} features, D={dim}, rows in cache",
            [1e6 * one for one in times[str(features)]],
            goal=f"<= {2 + 0.1 * features:g}",
            unit="us",
            yardstick="2 us + 0.1 us a feature",
            distributions=DISTRIBUTIONS,
        )
