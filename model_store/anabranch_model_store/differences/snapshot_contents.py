"""Tables and weights of a snapshot, opened: a version as published, and deltas on top of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.cut_tables import TensorRows
from anabranch_model_store.deltas.chains import shortest_chain
from anabranch_model_store.deltas.delta_files import read_files
from anabranch_model_store.deltas.delta_folders import DeltaNumbers, check_base, read_delta
from anabranch_model_store.deltas.delta_rows import changed_rows, changed_weights
from anabranch_model_store.deltas.origins import LocalOrigin, Origin
from anabranch_model_store.deltas.targets import RowChanges
from anabranch_model_store.differences.graph_weights import GraphWeight, graph_weights
from anabranch_model_store.differences.row_differences import TableRows
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.table_files import RowSource, open_table_file
from anabranch_model_store.version_files import VersionFiles, list_version
from anabranch_model_store.version_tables import every_table
from anabranch_model_store.yaml_files import read_meaning
from anabranch_wire.delta import Delta
from anabranch_wire.delta import TableRows as DeltaRows
from anabranch_wire.errors import InvalidInput, NotFound
from anabranch_wire.snapshots import Snapshot

__all__ = ["SnapshotContents", "open_snapshot"]

Array = NDArray[np.generic]
Layer = tuple[str, Callable[[], RowChanges]]


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotContents:
    """A snapshot whose headers were read. For one thread.

    Attributes:
        folder: of its version.
        snapshot: which one.
        tables: by the names that their files, or the graph, have for them.
        weights: of the graphs; those that are tables are among them.
        replaced: weights that deltas brought anew, whole.
    """

    folder: Path
    snapshot: Snapshot
    tables: Mapping[str, TableRows]
    weights: Mapping[str, GraphWeight]
    replaced: Mapping[str, Array]

    def rows_of(self, name: str) -> RowSource | None:
        """Return a weight as the rows of a table; None where it is no matrix that could be one."""
        weight = self.weights.get(name)
        if weight is None or name in self.replaced or not weight.can_be_rows:
            return None
        return TensorRows(weight.tensor)

    def weight(self, name: str) -> Array | None:
        """Return all of a weight; None where there is none of that name."""
        if name in self.replaced:
            return self.replaced[name]
        return self.weights[name].array() if name in self.weights else None


def open_snapshot(
    model: Path, snapshot: Snapshot, origin: Origin | None = None
) -> SnapshotContents:
    """Open a version and the deltas that lead to a snapshot of it.

    Args:
        model: folder of the model.
        snapshot: which one.
        origin: brings the files of versions and deltas; None where they lie in the repository.

    Raises:
        NotFound: there is no such version or delta.
        AnabranchError: its files cannot be read, or do not go together.
    """
    shown = model / str(snapshot.version)
    if not shown.is_dir():
        raise NotFound(f"model {model.name!r} has no version {snapshot.version}")
    brings: Origin = LocalOrigin() if origin is None else origin
    folder = brings.version(shown, lambda done, total: None)
    files = list_version(folder, Snapshot(snapshot.model, snapshot.version))
    meaning = read_meaning(files, model)
    weights = graph_weights(files, meaning)
    tables = {one.name: TableRows(open_table_file(files, one)) for one in every_table(files)}
    for name, weight in weights.items():
        if weight.is_table and name not in tables:
            tables[name] = TableRows(TensorRows(weight.tensor))
    contents = SnapshotContents(shown.resolve(), snapshot, tables, weights, {})
    return _with_deltas(contents, files, meaning, brings, shown)


def _with_deltas(
    contents: SnapshotContents,
    files: VersionFiles,
    meaning: ModelMeaning,
    origin: Origin,
    shown: Path,
) -> SnapshotContents:
    """Return contents with the layers of the fewest deltas that lead to the snapshot."""
    snapshot = contents.snapshot
    layers: dict[str, list[Layer]] = {}
    tables, replaced = dict(contents.tables), dict(contents.replaced)
    for delta in _chain(shown, snapshot):
        check_base(
            delta,
            Snapshot(snapshot.model, snapshot.version),
            files.identity or delta.base.identity,  # which takes reading every byte
        )
        label = f"{delta.sequence:08}/{delta.attempt}"
        attempt = partial(origin.attempt, shown, delta)
        for rows in delta.tables:
            name = _own_name(rows.name, meaning, {**contents.weights, **tables})
            if name not in tables:
                tables[name] = _matrix(contents, name, delta)
            layers.setdefault(name, []).append((label, partial(_rows, attempt, delta, rows)))
        if delta.dense is None:
            continue
        names = (delta.dense.file,)
        for given, array in changed_weights(read_files(attempt(), delta, names)).items():
            name = _own_name(given, meaning, {**contents.weights, **tables})
            if name in tables:
                layers.setdefault(name, []).append((f"{label} dense", partial(_whole, array)))
            else:
                replaced[name] = array
    for name, several in layers.items():
        tables[name] = TableRows(tables[name].source, tuple(several))
    return replace(contents, tables=tables, replaced=replaced)


def _chain(folder: Path, snapshot: Snapshot) -> list[Delta]:
    """Return the deltas that lead to a snapshot, one after the other.

    Raises:
        NotFound: one is missing.
    """
    known: dict[int, Delta] = {}

    def replaces_from(number: int) -> int | None:
        delta = read_delta(folder, number)
        if delta is None:
            return None
        known[number] = delta
        return delta.replaces_from

    numbers = DeltaNumbers(folder).between
    chain = shortest_chain(0, snapshot.delta, replaces_from, numbers=numbers)
    if chain.missing is not None:
        raise NotFound(
            f"version {snapshot.version} of model {snapshot.model!r} has no delta {chain.missing}, "
            f"which is needed to come to {snapshot}"
        )
    return [known[number] for number in chain.deltas]


def _own_name(name: str, meaning: ModelMeaning, known: Mapping[str, object]) -> str:
    """Return the name that a version itself has for what a delta names, perhaps by an alias."""
    if name in known:
        return name
    for table, one in meaning.tables.items():
        names = (table, *one.alias)
        if name in names:
            return next((other for other in names if other in known), name)
    return name


def _matrix(contents: SnapshotContents, name: str, delta: Delta) -> TableRows:
    source = contents.rows_of(name)
    if source is None:
        raise InvalidInput(f"delta {delta.sequence}: version {delta.version} has no table {name!r}")
    return TableRows(source)


def _rows(attempt: Callable[[], Path], delta: Delta, rows: DeltaRows) -> RowChanges:
    return changed_rows(read_files(attempt(), delta, (rows.file,)), rows)


def _whole(array: Array) -> RowChanges:
    """Return a table that a delta brought anew as its rows."""
    keys = np.arange(len(array), dtype=np.int64)
    return RowChanges(keys, array.astype(np.float32), np.empty(0, np.int64))
