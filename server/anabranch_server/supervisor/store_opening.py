"""A version's segment opened, and its first generation made, after a look at the memory left."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch_runtime.store import Base, Capacity, Segment, StoreWriter, suited_base
from anabranch_runtime.store import Change as RowChange
from anabranch_server.processes.plans import StorePlan
from anabranch_server.supervisor.store_figures import StoreFigures
from anabranch_server.supervisor.store_replay import replayed
from anabranch_server.supervisor.store_sizes import (
    check_room,
    generation_bytes,
    less,
    with_room_for_all,
)
from anabranch_wire.errors import Unavailable

__all__ = ["OpenStore", "open_store"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenStore:
    """A store as it begins.

    Attributes:
        segment: what lies under it.
        descriptor: that others map the segment from; belongs to whoever has the store.
        writer: of its generation.
        capacities: room of that.
        figures: of that.
    """

    segment: Segment
    descriptor: int
    writer: StoreWriter
    capacities: tuple[Capacity, ...]
    figures: StoreFigures


def open_store(
    plan: StorePlan,
    base: Base,
    available_bytes: int | None,
    fills: Iterable[Callable[[RowChange], None]],
) -> OpenStore:
    """Open a segment and make a generation over it; any thread.

    Args:
        plan: of the store.
        base: where base rows live.
        available_bytes: memory that it may take, a copy of the segment included; None where that
            is not known.
        fills: what has changed since the segment was made.

    Raises:
        NoRoom: what `fills` change is more than the tables may have.
        TooLarge: there is no memory for it; the message has the numbers.
        Unavailable: the segment is gone.
        Corrupt, Unsupported: the segment is damaged, or of a newer release.
        AnabranchError: what `fills` raise.
    """
    rooms: Sequence[Capacity] = [Capacity(one.arena_rows, one.keys) for one in plan.capacities]
    path, descriptor = Path(plan.segment), -1
    try:
        segment = _open(path, base, rooms, available_bytes)
        copy = segment.memory_fd
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if copy is None else os.dup(copy)
        left = available_bytes if copy is None else less(available_bytes, segment.bytes)
        most_keys = [one.most_keys for one in plan.capacities]
        rooms = with_room_for_all(segment.tables, rooms, left)
        writer, rooms = replayed(segment, rooms, most_keys, fills, left)
        figures = StoreFigures.of(writer, len(segment.tables))
    except BaseException as error:
        if descriptor >= 0:
            os.close(descriptor)
        if isinstance(error, OSError):
            text = f"the tables of the version cannot be opened: {error.strerror}"
            raise Unavailable(text) from None
        raise
    return OpenStore(segment, descriptor, writer, tuple(rooms), figures)


def _open(
    path: Path, base: Base, rooms: Sequence[Capacity], available_bytes: int | None
) -> Segment:
    """Open a segment; a copy must leave room for the generation."""
    mapped = Segment.open(path)
    if base == "auto":
        left = less(available_bytes, generation_bytes(mapped.tables, rooms))
        base = suited_base(path, left)
    copied_bytes = mapped.bytes if base == "copy" else 0
    check_room(mapped.tables, rooms, available_bytes, copied_bytes=copied_bytes)
    return mapped if base == "map" else Segment.open(path, base=base)
