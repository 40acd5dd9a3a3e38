"""Bringing the rows of a store to where runs of deltas lead, in a writer's own generation."""

from collections.abc import Sequence

from anabranch_model_store.deltas.runs import RunFile
from anabranch_runtime.store import Capacity, Change, SegmentTable, StoreWriter
from anabranch_wire.errors import Corrupt
from anabranch_wire.plan import MAX_ROWS

__all__ = ["check_run", "replay_run", "rooms_for", "stage_run"]


def check_run(run: RunFile, tables: int) -> None:
    """Check all of a run before anything of it is put into a change.

    Args:
        run: whose file is whole.
        tables: that the store has.

    Raises:
        Corrupt: it is damaged, or is for another store.
    """
    run.verify()
    for one in run.tables:
        if one.table >= tables:
            raise Corrupt(f"{run.path.name}: rows of table {one.table}; the store has {tables}")


def stage_run(run: RunFile, tables: int, change: Change) -> None:
    """Put a run into a change, after all of it was checked: nothing could be taken back later.

    Args:
        run: whose file is whole.
        tables: that the store has.
        change: that nothing was put into yet.

    Raises:
        Corrupt: it is damaged, or is for another store.
        InvalidInput, StoreFull: the store cannot take it.
    """
    check_run(run, tables)
    for one in run.tables:
        if len(one.deleted):  # first: where a table is full, they make room for what comes
            change.erase(one.table, one.deleted)
        if len(one.keys):
            change.upsert(one.table, one.keys, one.values)


def replay_run(run: RunFile, writer: StoreWriter, tables: int) -> None:
    """Change the rows of a generation that nobody else reads.

    Raises:
        AnabranchError: as `stage_run`.
    """
    with writer.begin() as change:
        stage_run(run, tables, change)
        change.apply()
    writer.reclaim(writer.version)


def rooms_for(tables: Sequence[SegmentTable], runs: Sequence[RunFile]) -> list[Capacity]:
    """Return the room that a generation needs so that runs can be replayed into it, and no more.

    Args:
        tables: of the segment.
        runs: what is to be replayed.
    """
    arena = [1] * len(tables)
    keys = [max(1, table.rows) for table in tables]
    for run in runs:
        for one in run.tables:
            if one.table < len(tables):
                arena[one.table] += len(one.keys) + len(one.deleted)
                keys[one.table] += len(one.keys)
    return [
        Capacity(arena_rows=min(rows, MAX_ROWS - table.rows), keys=min(count, MAX_ROWS))
        for table, rows, count in zip(tables, arena, keys, strict=True)
    ]
