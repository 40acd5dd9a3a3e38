"""What one snapshot of a model has that another has not, table by table and weight by weight."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch_model_store.differences.row_differences import TableRows, compare_rows
from anabranch_model_store.differences.snapshot_contents import SnapshotContents
from anabranch_model_store.differences.weight_differences import compare_weights
from anabranch_wire.errors import Unavailable

__all__ = ["SnapshotDifference", "TableDifference", "WeightDifference", "compare_snapshots"]


@dataclass(frozen=True, slots=True)
class TableDifference:
    """A table that one of the snapshots has, or both.

    Attributes:
        name: of the table.
        added: keys that only the second one has.
        changed: keys of both whose rows differ.
        removed: keys that only the first one has.
        change_norm: Euclidean length of the change of all rows that both have; None where it is no
            finite number, or rows have different lengths.
    """

    name: str
    added: int
    changed: int
    removed: int
    change_norm: float | None


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """A weight that one of the snapshots has, or both.

    Attributes:
        name: as the version's graph has it.
        changed: numbers that differ; all of them where only one has it, or shapes differ.
        change_norm: Euclidean length of the change; None where it is no finite number, or cannot be
            said.
    """

    name: str
    changed: int
    change_norm: float | None


@dataclass(frozen=True, slots=True)
class SnapshotDifference:
    """All tables and weights; those that do not differ have zeros.

    Attributes:
        tables: by name.
        dense: other weights of the graphs, by name.
    """

    tables: tuple[TableDifference, ...]
    dense: tuple[WeightDifference, ...]


def compare_snapshots(before: SnapshotContents, after: SnapshotContents) -> SnapshotDifference:
    """Return what changes from one snapshot to another. Reads every row of both, some at a time.

    Numbers are compared as float32, as they were published: what a store keeps of them with fewer
    bits is not looked at.

    Args:
        before: the first one.
        after: the second one, of the same version or of another.

    Raises:
        AnabranchError: files cannot be read, or there is no room for temporary ones.
    """
    is_same_version = before.folder == after.folder
    one_side = {**_as_tables(before, after), **before.tables}
    other_side = {**_as_tables(after, before), **after.tables}
    tables: list[TableDifference] = []
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-diff-") as folder:
            for name in sorted(one_side.keys() | other_side.keys()):
                counts = compare_rows(
                    one_side.get(name),
                    other_side.get(name),
                    Path(folder),
                    same_file=is_same_version and name in one_side and name in other_side,
                )
                norm = _finite(math.sqrt(counts.squares))
                tables.append(
                    TableDifference(name, counts.added, counts.changed, counts.removed, norm)
                )
    except OSError as error:
        raise Unavailable(f"temporary files cannot be made: {error.strerror}") from None
    names = (before.weights.keys() | before.replaced.keys()) | (
        after.weights.keys() | after.replaced.keys()
    )
    dense: list[WeightDifference] = []
    for name in sorted(names - one_side.keys() - other_side.keys()):
        if is_same_version and before.replaced.get(name) is after.replaced.get(name):
            dense.append(WeightDifference(name, 0, 0.0))
            continue
        changed, length = compare_weights(before.weight(name), after.weight(name))
        dense.append(WeightDifference(name, changed, _finite(length)))
    return SnapshotDifference(tuple(tables), tuple(dense))


def _as_tables(one: SnapshotContents, other: SnapshotContents) -> Mapping[str, TableRows]:
    """Return weights of one snapshot that are tables in the other."""
    return {
        name: TableRows(rows)
        for name in other.tables.keys() - one.tables.keys()
        if (rows := one.rows_of(name)) is not None
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
