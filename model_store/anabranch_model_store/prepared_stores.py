"""What a server needs to keep the rows of a version, and what it costs in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.row_formats import TableSize
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.version_tables import DEFAULT_RESERVE, VersionTables, room_for
from anabranch_runtime.store import Segment
from anabranch_wire.plan import Capacity, Plan
from anabranch_wire.tensors import TensorSpec

__all__ = ["PreparedStore", "StoreSettings", "needed_bytes", "prepared_store"]


@dataclass(frozen=True, slots=True, eq=False)
class StoreSettings:
    """How rows of versions are prepared.

    Attributes:
        segments: where segments are kept.
        graphs: where graphs are kept whose lookups were cut out; None where none are cut.
        reserve: share of a table's rows that deltas may add, where model.yaml does not say.
        on_bytes: told how many bytes of how many have been imported or verified.
        items: where item tables are kept; None where versions with one cannot be prepared.
    """

    segments: SegmentCache
    graphs: BuiltGraphs | None = None
    reserve: float = DEFAULT_RESERVE
    on_bytes: Callable[[int, int], None] = lambda done, total: None
    items: ItemCache | None = None


@dataclass(frozen=True, slots=True)
class PreparedStore:
    """The rows of a version, and how they are looked up.

    Attributes:
        segment: file in the cache folder.
        bytes: of that file.
        plan: lookups, with the tables that they read.
        capacities: room for each table of the segment, in its order.
        inputs: features as metadata shows them, in the order of requests.
        memory_bytes: of rows, indexes and all reserved room, once for the machine.
    """

    segment: Path
    bytes: int
    plan: Plan
    capacities: tuple[Capacity, ...]
    inputs: tuple[TensorSpec, ...]
    memory_bytes: int


def needed_bytes(tables: VersionTables) -> int:
    """Return what the tables of a version will take at least, before any of them is read."""
    needed = 0
    for table in tables.used:
        plan = table.plan
        size = TableSize(plan.rows, plan.dim, plan.dtype, plan.keys)
        room = plan.capacity or room_for(plan.rows, DEFAULT_RESERVE)
        needed += size.segment_bytes() + size.generation_bytes(room)
    return needed


def prepared_store(
    path: Path, segment: Segment, plan: Plan, inputs: tuple[TensorSpec, ...]
) -> PreparedStore:
    """Return the rows of a version as the server is told of them.

    Tables of the segment that no lookup reads get the least room there is.

    Args:
        path: of the segment.
        segment: opened.
        plan: of the version.
        inputs: features as metadata shows them.
    """
    rooms = {table.name: table.capacity for table in plan.tables}
    capacities = tuple(
        rooms.get(table.name) or room_for(table.rows, 0.0) for table in segment.tables
    )
    generation = sum(
        TableSize(table.rows, table.dim, table.row_type, table.keys).generation_bytes(room)
        for table, room in zip(segment.tables, capacities, strict=True)
    )
    return PreparedStore(path, segment.bytes, plan, capacities, inputs, segment.bytes + generation)
