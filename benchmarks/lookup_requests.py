"""Requests that are bound to a lookup plan once, and then run over and over."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.store import (
    FeatureArrays,
    FeatureLookup,
    Generation,
    LookupArguments,
    LookupBuffer,
    LookupPlan,
)
from lookup_material import Numbers, aligned, keys_of

__all__ = ["Bags", "Requests", "bags", "plan_of", "single_table"]


@dataclass(frozen=True, slots=True)
class Bags:
    """What one request asks: for each feature, rows of its table in bags.

    Attributes:
        numbers: feature -> row numbers (ids,).
        offsets: feature -> where bags begin and the last one ends (rows + 1,); None where every bag
            is one id.
    """

    numbers: tuple[Numbers, ...]
    offsets: tuple[NDArray[np.int64], ...] | None = None

    @property
    def ids(self) -> int:
        """How many rows are looked up."""
        return sum(map(len, self.numbers))


@dataclass(frozen=True, slots=True)
class Requests:
    """Bound requests of one size, which all write to one output.

    Attributes:
        plan: how they are looked up.
        arguments: one for each request.
        rows: rows of each.
        out: (rows, features * dim), what the last one gave.
    """

    plan: LookupPlan
    arguments: tuple[LookupArguments, ...]
    rows: int
    out: NDArray[np.float32]

    def run(self, version: int) -> None:
        """Answer every request, one after another."""
        run, rows = self.plan.run, self.rows
        for arguments in self.arguments:
            run(arguments, version, rows)


def plan_of(generation: Generation, tables: Sequence[int], *, in_bags: bool = False) -> LookupPlan:
    """Return a plan of one feature for each of `tables`, side by side in one f32 buffer."""
    lookups = []
    column = 0
    for feature, table in enumerate(tables):
        lookups.append(
            FeatureLookup(
                feature=f"f{feature}",
                table=table,
                combiner="sum",
                bag="offsets" if in_bags else "fixed",
                max_length=1_000_000 if in_bags else 1,
                column=column,
            )
        )
        column += generation.tables[table].dim
    return LookupPlan(generation, lookups, [LookupBuffer(columns=column)])


def bags(
    plan: LookupPlan,
    tables: Sequence[int],
    requests: Sequence[Bags],
    rows: int,
    columns: int,
    *,
    dense: bool = False,
) -> Requests:
    """Bind `requests` to `plan`.

    Args:
        plan: of `plan_of`.
        tables: the table of each feature.
        requests: what is asked.
        rows: bags of each request.
        columns: of the output.
        dense: ids are row numbers; else keys.
    """
    out = aligned(rows, columns)
    arguments = []
    for request in requests:
        features = [
            FeatureArrays(
                ids=numbers if dense else keys_of(table, numbers).view(np.int64),
                bag=request.offsets[feature] if request.offsets is not None else None,
            )
            for feature, (table, numbers) in enumerate(zip(tables, request.numbers, strict=True))
        ]
        arguments.append(plan.arguments(features, [out]))
    return Requests(plan, tuple(arguments), rows, out)


def single_table(generation: Generation, batches: NDArray[np.int64], *, table: int = 0) -> Requests:
    """Return one request for each of `batches` (requests, rows) of row numbers of one table."""
    plan = plan_of(generation, [table])
    requests = [Bags((numbers,)) for numbers in batches]
    return bags(plan, [table], requests, batches.shape[1], generation.tables[table].dim)
