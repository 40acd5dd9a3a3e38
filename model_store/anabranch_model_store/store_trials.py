"""A store for as long as a version is looked at: its requests are looked up in it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.run_replay import replay_run, rooms_for
from anabranch_model_store.deltas.runs import RunFile
from anabranch_model_store.table_files import RowChunk
from anabranch_model_store.version_tables import VersionTables
from anabranch_runtime.lookups import Lookups
from anabranch_runtime.row_source import RowSource, StoreView
from anabranch_runtime.store import Generation, Segment, StoreWriter
from anabranch_wire.missing import Original, Refuse
from anabranch_wire.plan import Plan, PlanTable

__all__ = ["StoreTrial", "TrialStore"]

_KNOWN: Final = 256
_UNKNOWN: Final = 64
_SEED: Final = 4


class TrialStore:
    """One generation over a segment, without room for further changes. For one thread.

    Its memory goes when nothing refers to it any more.

    Attributes:
        segment: what it lies over.
        view: of its rows.
    """

    def __init__(self, segment: Path, runs: Sequence[Path] = ()) -> None:
        """Open a segment.

        Args:
            segment: the rows as they were published.
            runs: what deltas make of them, one after the other.

        Raises:
            Corrupt, Unsupported, Unavailable: a file is damaged, of a newer format, or gone.
            OSError: there is no memory to be had.
        """
        self.segment = Segment.open(segment)
        tables, files = self.segment.tables, [RunFile.open(path) for path in runs]
        self._writer = StoreWriter.create(self.segment, rooms_for(tables, files))
        for file in files:
            replay_run(file, self._writer, len(tables))
        self.view = StoreView(self._writer.generation, self._writer.version)


class StoreTrial:
    """A trial store with the lookups of a version. For one thread.

    Attributes:
        source: of rows.
        segment: what it lies over.
    """

    def __init__(self, segment: Path, lookups: Lookups) -> None:
        """Open a segment.

        Raises:
            Corrupt, Unsupported: it is damaged, or of a newer format.
            InvalidInput: it has other tables than the lookups.
            OSError: there is no memory to be had.
        """
        self._store = TrialStore(segment)
        self.segment = self._store.segment
        self.source = RowSource.open(lookups, self._store.view)

    def keys(self, tables: VersionTables) -> dict[str, NDArray[np.int64]]:
        """Return keys to make requests up of, by feature: of its tables, and some that are not.

        Where a missing key fails a request there are only keys that all such tables hold.
        """
        plan, view = self.source.lookups.plan, self.source.view
        known = {table.plan.name: _first_keys(table.source.chunks()) for table in tables.used}
        found: dict[str, NDArray[np.int64]] = {}
        for feature in self.source.lookups.features:
            read = _tables_of(plan, feature.name)
            strict = [table for table in read if isinstance(table.missing, Original | Refuse)]
            keys = known[(strict or read)[0].name]
            for table in strict[1:]:
                keys = keys[self._holds(view.generation, table.name, keys, view.version)]
            if not strict:
                rng = np.random.default_rng(_SEED)
                keys = np.concatenate([keys, rng.integers(0, 2**64, _UNKNOWN, np.uint64)])
            found[feature.name] = keys.view(np.int64)
        return found

    def _holds(
        self, generation: Generation, table: str, keys: NDArray[np.uint64], version: int
    ) -> NDArray[np.bool_]:
        numbers: Mapping[str, int] = {
            one.name: number for number, one in enumerate(generation.tables)
        }
        return generation.rows(numbers[table], keys, version)[1]


def _first_keys(chunks: Iterator[RowChunk]) -> NDArray[np.uint64]:
    for chunk in chunks:
        return np.ascontiguousarray(chunk.row_keys()[:_KNOWN])
    return np.zeros(0, np.uint64)


def _tables_of(plan: Plan, feature: str) -> list[PlanTable]:
    """Return the tables that a feature's keys are looked up in."""
    numbers = dict.fromkeys(lookup.table for lookup in plan.lookups if lookup.ids.input == feature)
    return [plan.tables[number] for number in numbers]
