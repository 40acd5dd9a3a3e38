"""Batches on which an optimised model is compared with its original."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.running import Array
from anabranch_wire.errors import AnabranchError
from anabranch_wire.lookups import Lookup, Side

__all__ = [
    "CutLookups",
    "ParityCase",
    "joined",
    "of_one_user",
    "one_user_requests",
    "parity_cases",
]

_ROWS: Final = (1, 2, 7, 33)
_EDGE_ROWS: Final = 6
_USER_ROWS: Final = (3, 1, 5)
_SEED: Final = 31
_MAX_EDGES: Final = 200
"""Elements whose edges are tried: of a thousand features each is like some other."""


class CutTable(Protocol):
    """A table that lookups read."""

    @property
    def rows(self) -> int:
        """Rows that it has."""
        ...


class CutLookups(Protocol):
    """What was cut out of a model: an `Optimized`, or a plan."""

    @property
    def lookups(self) -> Sequence[Lookup]:
        """One for each run of ids."""
        ...

    @property
    def tables(self) -> Sequence[CutTable]:
        """What they read."""
        ...

    @property
    def user_inputs(self) -> Sequence[str]:
        """Inputs of which one row may stand for all rows; empty where nothing is done once."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ParityCase:
    """One batch.

    Attributes:
        name: how messages call it.
        inputs: one array for each input of the original.
    """

    name: str
    inputs: Mapping[str, Array]


def parity_cases(
    optimized: CutLookups,
    source: ExampleInputs,
    given: Sequence[ParityCase] = (),
    min_rows: int = 1,
) -> Iterator[ParityCase]:
    """Yield made-up batches, batches with ids at and beyond the edges of tables, and given ones.

    Args:
        optimized: what was cut; its lookups tell where ids are.
        source: makes up inputs of the original.
        given: recorded requests.
        min_rows: fewest rows that the original runs with.
    """
    rng = np.random.default_rng(_SEED)
    for rows in _ROWS:
        if rows >= min_rows:
            yield ParityCase(f"{rows} made-up rows", source.batch(rows, rng))
    yield from given
    try:
        base = source.batch(max(_EDGE_ROWS, min_rows), rng)
    except AnabranchError:
        return
    repeated = {name: _repeated(array) for name, array in base.items()}
    yield ParityCase("the same row many times", repeated)
    if optimized.user_inputs:
        yield ParityCase("one user for all rows", of_one_user(base, optimized.user_inputs))
    yield from _edges(optimized, base)


def of_one_user(batch: Mapping[str, Array], users: Collection[str]) -> dict[str, Array]:
    """Return a batch whose first user is that of all rows, one row in memory."""
    return {
        name: np.broadcast_to(array[:1], array.shape) if name in users else array
        for name, array in batch.items()
    }


def one_user_requests(source: ExampleInputs, users: Collection[str]) -> list[dict[str, Array]]:
    """Return made-up requests of different users and numbers of rows, all else being equal."""
    rng = np.random.default_rng(_SEED)
    made = [of_one_user(source.batch(rows, rng), users) for rows in _USER_ROWS]
    return [one for one in made if _sizes(one) == _sizes(made[0])]


def _sizes(batch: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape[1:] for name, array in batch.items()}


def joined(requests: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the rows of several requests one below the other."""
    return {name: np.concatenate([request[name] for request in requests]) for name in requests[0]}


def _repeated(array: Array) -> Array:
    if array.ndim == 0 or len(array) < 2:
        return array
    return np.repeat(array[:1], len(array), axis=0)


def _edges(optimized: CutLookups, base: Mapping[str, Array]) -> Iterator[ParityCase]:
    """Yield the batch with one id moved to the edge of its tables, or beyond."""
    for (name, side, column), (low, high) in list(_bounds(optimized).items())[:_MAX_EDGES]:
        if name not in base or not base[name].size or base[name].ndim == 0:
            continue  # of a prelude, or empty bags
        for value, word in ((high, "last"), (low, "first, counted from the end")):
            yield ParityCase(
                f"id {value} in {name!r}[{column}], the {word} of its table",
                _with_id(base, name, side, column, value),
            )
        for value in (high + 1, low - 1):
            yield ParityCase(
                f"id {value} in {name!r}[{column}], outside of its table",
                _with_id(base, name, side, column, value),
            )


def _bounds(optimized: CutLookups) -> dict[tuple[str, Side, int], tuple[int, int]]:
    """Return for each element that holds ids the lowest and the highest that all tables have."""
    bounds: dict[tuple[str, Side, int], tuple[int, int]] = {}
    for lookup in optimized.lookups:
        rows = optimized.tables[lookup.table].rows
        begin = 0 if lookup.ids.columns is None else lookup.ids.columns[0]
        length = lookup.max_length if lookup.lengths is None else 1
        for column in range(begin, begin + length):
            key = (lookup.ids.input, lookup.side, column)
            low, high = bounds.get(key, (-(2**63), 2**63 - 1))
            low = max(low, -rows - lookup.ids.add)
            bounds[key] = (low, min(high, rows - 1 - lookup.ids.add))
    return bounds


def _with_id(
    base: Mapping[str, Array], name: str, side: Side, column: int, value: int
) -> Mapping[str, Array]:
    """Return the batch with one id of its middle row changed, or of what all rows share."""
    changed = base[name].copy()
    rows = len(changed) if side == "row" else 1
    changed.reshape(rows, -1)[rows // 2, column] = value
    return {**base, name: changed}
