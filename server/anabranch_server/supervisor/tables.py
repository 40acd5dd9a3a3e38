"""Tables as the admin doors show them: sizes, what was found and missed, single rows."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from anabranch_runtime.counters import Series
from anabranch_server.administration import RowView, TableView
from anabranch_server.processes.plans import GenerationPlan, StatePlan, VersionPlan
from anabranch_server.supervisor.row_changes import changed_by
from anabranch_server.supervisor.store_sizes import arena_bytes, base_bytes, index_bytes
from anabranch_server.supervisor.stores import Stores
from anabranch_server.supervisor.version_store import VersionStore
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable

__all__ = ["TableAdministration"]

_BITS: Final = 64


class _Read(NamedTuple):
    """What a version reads: one generation of its store."""

    version: VersionPlan
    generation: GenerationPlan
    store: VersionStore


class TableAdministration:
    """The tables of the versions that answer by default. Belongs to the event loop.

    Args:
        stores: have the rows.
        states: returns what each model serves.
        counted: returns what all workers have counted, those that died included.
    """

    def __init__(
        self,
        stores: Stores,
        states: Callable[[], Mapping[str, StatePlan]],
        counted: Callable[[], Iterable[Series]],
    ) -> None:
        self._stores = stores
        self._states = states
        self._counted = counted

    async def tables(self, model: str) -> list[TableView]:
        """See `Administration`; the model is known."""
        found = self._store(model)
        if found is None:
            return []
        store = found.store
        figures = await store.glance()
        lookups = self._total("anabranch_store_lookups_total", model)
        missed = self._total("anabranch_store_misses_total", model)
        views = []
        for table, stats in zip(store.tables, figures.tables, strict=True):
            misses = missed.get(table.name, 0)
            views.append(
                TableView(
                    name=table.name,
                    rows=stats.live_keys,
                    dim=table.dim,
                    dtype=table.row_type,
                    keys=table.keys,
                    bytes=base_bytes(table) + index_bytes(table, stats) + arena_bytes(table, stats),
                    load=stats.load,
                    mean_probe=stats.mean_probe,
                    hits=lookups.get(table.name, 0) - misses,
                    misses=misses,
                )
            )
        return views

    async def rows(self, model: str, table: str, keys: Sequence[int]) -> list[RowView]:
        """See `Administration`; the model is known."""
        found = self._store(model)
        names = [] if found is None else [one.name for one in found.store.tables]
        if found is None or table not in names:
            known = ", ".join(map(repr, names[:20])) or "none"
            raise NotFound(f"model {model!r} has no table {table[:200]!r}; known: {known}")
        number = names.index(table)
        bits = np.array([_unsigned(key) for key in keys], np.uint64)
        values, present = await found.store.rows(found.generation, number, bits)
        deltas = await asyncio.to_thread(changed_by, found.version, number, bits.view(np.int64))
        return [
            RowView(
                key,
                is_there,
                row.tolist() if is_there else [],
                float(np.linalg.norm(row.astype(np.float64))) if is_there else None,
                changed_by_delta=delta,
            )
            for key, row, is_there, delta in zip(
                keys, values, present.tolist(), deltas, strict=True
            )
        ]

    def _store(self, model: str) -> "_Read | None":
        """Return what the default version reads."""
        state = self._states().get(model)
        if state is None or state.default is None:
            return None
        wanted = state.generation(state.default)
        if wanted is None:
            return None
        version = next(one for one in state.versions if one.version == wanted.version)
        for generation, store in self._stores.stores(model):
            if generation.version == wanted.version:
                return _Read(version, generation, store)
        raise Unavailable(f"model {model!r}: its tables are being made anew; ask again")

    def _total(self, name: str, model: str) -> dict[str, int]:
        """Return table -> what was counted, over all workers."""
        totals: dict[str, int] = {}
        for series in self._counted():
            labels = dict(series.labels)
            if series.name == name and labels["model"] == model:
                table = labels["table"]
                totals[table] = totals.get(table, 0) + int(series.values[0])
        return totals


def _unsigned(key: int) -> int:
    """Return the bits of a key; signed and unsigned ones of the same bits are one key."""
    if not -(1 << (_BITS - 1)) <= key < 1 << _BITS:
        raise InvalidInput(f"key {key}: expected a 64-bit integer")
    return key % (1 << _BITS)
