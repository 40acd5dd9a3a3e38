"""The tables that a version's lookups read: where rows come from, and how the store keeps them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from anabranch_model_store.model_yaml import ModelMeaning, TableMeaning
from anabranch_model_store.row_formats import MAX_DIM
from anabranch_model_store.table_files import (
    DeclaredTable,
    RowSource,
    declared_tables,
    open_table_file,
)
from anabranch_model_store.version_files import VersionFiles
from anabranch_runtime.store import Segment
from anabranch_wire.document_fields import RowType
from anabranch_wire.errors import AnabranchError, InvalidInput
from anabranch_wire.missing import Missing, Original, Refuse, Zeros
from anabranch_wire.plan import MAX_ROWS, Capacity, PlanTable

__all__ = [
    "DEFAULT_RESERVE",
    "VersionTable",
    "VersionTables",
    "every_table",
    "read_tables",
    "room_for",
]

DEFAULT_RESERVE: Final = 0.25
_FEWEST_ARENA_ROWS: Final = 1024

KeyKind = Literal["hashed", "dense_id"]


@dataclass(frozen=True, slots=True, eq=False)
class VersionTable:
    """A table that lookups read.

    Attributes:
        plan: how the store keeps it.
        declared: its file.
        source: its rows.
    """

    plan: PlanTable
    declared: DeclaredTable
    source: RowSource


@dataclass(frozen=True, slots=True, eq=False)
class VersionTables:
    """The tables of a version.

    Attributes:
        used: those that lookups read, in the order in which they first name them.
        by_name: every name and alias that lookups use -> table.
        unused: names of those that no lookup reads.
        segment: file that holds all of `used`, ready as it is; None where one has to be made.
    """

    used: tuple[VersionTable, ...]
    by_name: Mapping[str, PlanTable]
    unused: tuple[str, ...]
    segment: str | None


def read_tables(
    files: VersionFiles, meaning: ModelMeaning, reserve: float = DEFAULT_RESERVE
) -> VersionTables:
    """Return the tables of a version; headers of their files are read, rows are not.

    Args:
        files: of the version.
        meaning: its model.yaml.
        reserve: share of a table's rows that deltas may add, where model.yaml does not say.

    Raises:
        NotFound: a file is missing.
        InvalidInput: a lookup names no table, or a table contradicts its file or model.yaml.
        Corrupt, Unavailable, Unsupported: a file cannot be read.
    """
    declared = {table.name: table for table in every_table(files)}
    canonical = {alias: name for name, one in meaning.tables.items() for alias in one.alias}
    used: dict[str, VersionTable] = {}
    by_name: dict[str, PlanTable] = {}
    for index, lookup in enumerate(meaning.lookups):
        name = _declared_name(lookup.table, canonical, meaning, declared)
        if name is None:
            raise InvalidInput(
                f"model.yaml: lookups[{index}]: no file of the version holds table "
                f"{lookup.table!r}; {_found(declared)}"
            )
        if name not in used:
            one = meaning.tables.get(canonical.get(lookup.table, lookup.table), TableMeaning())
            used[name] = _table(files, declared[name], one, reserve)
        by_name[lookup.table] = used[name].plan
    segments = {table.declared.file for table in used.values() if table.declared.is_segment}
    whole = len(segments) == 1 and all(table.declared.is_segment for table in used.values())
    return VersionTables(
        tuple(used.values()),
        by_name,
        tuple(name for name in declared if name not in used),
        segments.pop() if whole else None,
    )


def room_for(rows: int, reserve: float, max_rows: int = MAX_ROWS) -> Capacity:
    """Return the room of a table with `rows` rows.

    Args:
        rows: it has.
        reserve: share of them that may come on top.
        max_rows: keys at most.
    """
    arena = max(_FEWEST_ARENA_ROWS, math.ceil(reserve * rows))
    arena = min(arena, MAX_ROWS - rows)
    most_keys = max(rows, max_rows)
    return Capacity(
        arena_rows=max(1, arena), keys=min(most_keys, rows + arena), most_keys=most_keys
    )


def every_table(files: VersionFiles) -> Iterator[DeclaredTable]:
    """Yield the tables of a version by their own names; without a manifest, segments tell theirs.

    Raises:
        InvalidInput: two files would be one table.
        Corrupt, Unsupported, Unavailable: a segment cannot be read.
    """
    for table in declared_tables(files):
        if table.is_segment and table.claim is None:
            for inner in Segment.open(files.path(table.file)).tables:
                yield DeclaredTable(inner.name, table.file)
        else:
            yield table


def _declared_name(
    name: str,
    canonical: Mapping[str, str],
    meaning: ModelMeaning,
    declared: Mapping[str, DeclaredTable],
) -> str | None:
    """Return the name that a table of model.yaml has in its file."""
    own = canonical.get(name, name)
    names = (name, own, *(meaning.tables[own].alias if own in meaning.tables else ()))
    return next((one for one in names if one in declared), None)


def _found(declared: Mapping[str, DeclaredTable]) -> str:
    if not declared:
        return "it has no table file (see docs/repository.md, Tables)"
    shown = ", ".join(map(repr, list(declared)[:20]))
    return f"it has {shown}{' ...' if len(declared) > 20 else ''}"


def _table(
    files: VersionFiles, declared: DeclaredTable, meaning: TableMeaning, reserve: float
) -> VersionTable:
    place = f"model.yaml: tables[{declared.name!r}]"
    source = open_table_file(files, declared)
    found: KeyKind = "dense_id" if source.key_dtype is None else "hashed"
    row_type, keys = meaning.rows, found if meaning.keys == "auto" else meaning.keys
    if declared.is_segment:
        row_type = _as_written(source.dtype, found, meaning, place, declared.file)
    if source.dim > MAX_DIM:
        raise InvalidInput(
            f"{declared.file}: rows of {source.dim} numbers; expected 1 to {MAX_DIM}"
        )
    max_rows = min(meaning.capacity.max_rows, MAX_ROWS - 1)
    if source.rows > max_rows:
        raise InvalidInput(
            f"{place}.capacity.max_rows: {max_rows}; {declared.file} has {source.rows} rows"
        )
    share = reserve if meaning.capacity.reserve is None else meaning.capacity.reserve
    try:
        plan = PlanTable(
            name=declared.name,
            file=declared.file,
            rows=source.rows,
            dim=source.dim,
            dtype=row_type,
            keys=keys,
            missing=_missing(meaning, keys),
            padding_key=meaning.padding_key,
            capacity=room_for(source.rows, share, max_rows),
        )
    except AnabranchError as error:
        raise InvalidInput(f"{place}: {error.message}") from None
    return VersionTable(plan, declared, source)


def _as_written(
    row_type: RowType, keys: KeyKind, meaning: TableMeaning, place: str, file: str
) -> RowType:
    """Return the row type of a table in a segment, which stays what it is, as its keys do."""
    if meaning.keys not in ("auto", keys):
        raise InvalidInput(f"{place}.keys: {meaning.keys}; {file} has keys: {keys}")
    if meaning.rows not in ("f32", row_type):
        raise InvalidInput(f"{place}.rows: {meaning.rows}; {file} has {row_type} rows")
    return row_type


def _missing(meaning: TableMeaning, keys: KeyKind) -> Missing:
    """Return the policy for missing keys; zeros where none is stated."""
    if meaning.missing_policy == "original" and keys == "hashed":
        raise InvalidInput(
            "missing: original: that is what the graph's own operator does with row numbers; "
            "a hashed table needs zeros, vector, key or error"
        )
    words: dict[str, Missing] = {"original": Original(), "zeros": Zeros(), "error": Refuse()}
    if meaning.missing is None:
        return Zeros()
    return words[meaning.missing] if isinstance(meaning.missing, str) else meaning.missing
