"""What lies in a model's folder, for people: versions, their tables, and single rows.

Headers and manifests are read; nothing is hashed, run or changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.model_source import open_model
from anabranch_model_store.containment import resolve_inside
from anabranch_model_store.cut_tables import TensorRows
from anabranch_model_store.repository import VersionFolder, find_model
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.table_files import RowSource, open_table_file
from anabranch_model_store.version_contents import find_onnx_file, malformed_graphs_refused
from anabranch_model_store.version_files import VersionFiles, list_version
from anabranch_model_store.version_tables import every_table
from anabranch_model_store.yaml_files import read_deployment, read_meaning
from anabranch_wire.document_fields import RowType
from anabranch_wire.errors import AnabranchError, NotFound
from anabranch_wire.names import is_version
from anabranch_wire.snapshots import Snapshot

__all__ = ["FoundRow", "ModelFacts", "TableFacts", "VersionFacts", "find_rows", "inspect_model"]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table file.

    Attributes:
        name: of the table.
        file: relative to the version folder.
        rows: of the file.
        dim: numbers per row.
        dtype: of the numbers.
        keys: row numbers, or any 64-bit keys.
    """

    name: str
    file: str
    rows: int
    dim: int
    dtype: RowType
    keys: str


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version as its files say.

    Attributes:
        version: its number.
        step: training step; None where it does not say.
        event_time: newest event it was trained on, seconds since 1970.
        published: when, seconds since 1970.
        structure_hash: of its graph, if an optimiser wrote it.
        bytes: of its files.
        tables: beside the ONNX file.
        error: why it, or its tables, could not be read; None where all could.
    """

    version: int
    step: int | None = None
    event_time: float | None = None
    published: float | None = None
    structure_hash: str | None = None
    bytes: int = 0
    tables: tuple[TableFacts, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as its files say.

    Attributes:
        name: of the model.
        deployment: its serving.yaml.
        versions: by falling number.
    """

    name: str
    deployment: Deployment
    versions: tuple[VersionFacts, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FoundRow:
    """What a table holds for one key.

    Attributes:
        key: as it was asked for.
        values: as float32; None where the key has no row.
    """

    key: int
    values: NDArray[np.float32] | None


def inspect_model(folder: Path) -> ModelFacts:
    """Return what lies in the folder of a model, or in that of one version of it.

    Raises:
        NotFound: there is no such folder, or no version in it.
        InvalidInput: serving.yaml is malformed, or the folder is no model's.
        Unavailable: it cannot be read.
    """
    model, versions = _versions(folder)
    if not versions:
        raise NotFound(f"{folder}: no version in it")
    facts = tuple(_version_facts(model.name, one) for one in reversed(versions))
    return ModelFacts(model.name, read_deployment(model), facts)


def find_rows(folder: Path, table: str, keys: Sequence[int]) -> list[FoundRow]:
    """Return rows of a table, in the order of `keys`; its file is read until all are found.

    Args:
        folder: of a version, or of a model, whose newest version is meant then.
        table: name or alias of a table file, or the name of a table inside the graph.
        keys: signed or unsigned 64-bit integers.

    Raises:
        NotFound: there is no such version or table.
        AnabranchError: its files cannot be read.
    """
    model, versions = _versions(folder)
    if not versions:
        raise NotFound(f"{folder}: no version in it")
    newest = versions[-1]
    files = list_version(newest.path, Snapshot(model.name, newest.number))
    tables = {one.name: one for one in every_table(files)}
    meanings = read_meaning(files, model).tables
    names = [table, *(name for name, one in meanings.items() if table in one.alias)]
    names += meanings[table].alias if table in meanings else ()
    declared = next((tables[name] for name in names if name in tables), None)
    source = _graph_table(files, model, table) if declared is None else None
    if declared is not None:
        source = open_table_file(files, declared)
    if source is None:
        raise NotFound(
            f"version {newest.number} has no table file for {table!r}; it has "
            f"{', '.join(map(repr, tables)) or 'none'}, and its graph has no such table"
        )
    wanted = np.array([key % 2**64 for key in keys], np.uint64)
    found: dict[int, NDArray[np.float32]] = {}
    for chunk in source.chunks():
        at = np.flatnonzero(np.isin(chunk.row_keys(), wanted))
        if len(at):
            numbers = chunk.numbers()
            found |= {int(chunk.row_keys()[row]): numbers[row] for row in at}
        if len(found) == len(set(wanted.tolist())):
            break
    return [FoundRow(key, found.get(key % 2**64)) for key in keys]


def _graph_table(files: VersionFiles, model: Path, name: str) -> RowSource | None:
    """Return the rows of a float matrix of the graph; None where it has none of that name."""
    onnx_file = find_onnx_file(files, read_meaning(files, model))
    with malformed_graphs_refused(onnx_file):
        value = open_model(onnx_file.path).graph.initializers.get(name)
        tensor = None if value is None else value.const_value
        if tensor is None or len(tensor.shape) != 2 or not TensorRows.can_read(tensor):
            return None
        return TensorRows(tensor)


def _versions(folder: Path) -> tuple[Path, list[VersionFolder]]:
    """Return a model's folder, and its versions by rising number, or the one that was named."""
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    folder = folder.resolve()
    only = int(folder.name) if is_version(folder.name) else None
    model = folder if only is None else folder.parent
    found = find_model(model.parent, model.name, set())
    if found is None:
        raise NotFound(f"{folder}: no folder of a model or of a version")
    versions = [one for number, one in found.versions.items() if only in (None, number)]
    return resolve_inside(model.parent, model.name), versions


def _version_facts(model: str, version: VersionFolder) -> VersionFacts:
    try:
        files = list_version(version.path, Snapshot(model, version.number))
    except AnabranchError as error:
        return VersionFacts(version.number, error=error.message)
    manifest, problem = files.manifest, None
    tables: tuple[TableFacts, ...] = ()
    try:
        tables = _tables(files)
    except AnabranchError as error:
        problem = error.message
    return VersionFacts(
        version.number,
        None if manifest is None else manifest.step,
        None if manifest is None else manifest.event_time,
        None if manifest is None else manifest.created,
        None if manifest is None else manifest.structure_hash,
        sum(files.bytes.values()),
        tables,
        problem,
    )


def _tables(files: VersionFiles) -> tuple[TableFacts, ...]:
    facts: list[TableFacts] = []
    for table in every_table(files):
        source = open_table_file(files, table)
        keys = "dense_id" if source.key_dtype is None else "hashed"
        facts.append(
            TableFacts(table.name, table.file, source.rows, source.dim, source.dtype, keys)
        )
    return tuple(facts)
