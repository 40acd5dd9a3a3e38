"""What opening a store takes is held against the memory left, a copy of its rows included."""

import gc
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_runtime.store import Base, Capacity, Change, Segment
from anabranch_server.processes.plans import StorePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_opening import open_store
from anabranch_server.supervisor.store_sizes import generation_bytes
from anabranch_testing.marked_rows import DIM, marked_plan
from anabranch_wire.errors import TooLarge


def store_plan(folder: Path) -> StorePlan:
    """Return the plan of a store of a few rows."""
    plan = marked_plan(folder, 1).store
    assert plan is not None
    return plan


def needed(plan: StorePlan) -> tuple[int, int]:
    """Return the bytes of the segment and of the generation."""
    segment = Segment.open(Path(plan.segment))
    rooms = [Capacity(one.arena_rows, one.keys) for one in plan.capacities]
    return segment.bytes, generation_bytes(segment.tables, rooms)


def is_copied(plan: StorePlan, base: Base, available_bytes: int | None) -> bool:
    """Open a store; return whether its rows were copied."""
    made = open_store(plan, base, available_bytes, ())
    os.close(made.descriptor)
    return made.segment.memory_fd is not None


def test_a_mapped_segment_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    plan = store_plan(tmp_path)
    _, generation = needed(plan)

    assert not is_copied(plan, "map", generation)
    with pytest.raises(TooLarge, match=f"need {generation} bytes; .* {generation - 1} left"):
        open_store(plan, "map", generation - 1, ())


def test_rows_that_a_table_may_not_have_are_a_lack_of_room_and_leave_nothing_open(
    tmp_path: Path,
) -> None:
    plan = store_plan(tmp_path)
    rooms = [msgspec.structs.replace(one, most_keys=one.keys) for one in plan.capacities]
    plan = msgspec.structs.replace(plan, capacities=tuple(rooms))
    many = np.arange(10_000, 10_001 + rooms[0].keys)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))

    def fill(change: Change) -> None:
        change.upsert(0, many, np.ones((len(many), DIM), np.float32))

    with pytest.raises(NoRoom, match="has room for"):
        open_store(plan, "map", None, [fill])
    gc.collect()  # of what was raised
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_copied_segment_counts_before_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = store_plan(tmp_path)
    segment, generation = needed(plan)

    assert is_copied(plan, "copy", segment + generation)
    copied: list[int] = []
    monkeypatch.setattr("anabranch_runtime._native.Segment.copy", copied.append)
    with pytest.raises(TooLarge, match=f"and a copy of their rows {segment}; .* left"):
        open_store(plan, "copy", segment + generation - 1, ())
    assert not copied


def test_a_segment_is_copied_where_that_suits_if_the_generation_fits_beside_it(
    tmp_path: Path,
) -> None:
    plan = store_plan(tmp_path)
    segment, generation = needed(plan)

    assert is_copied(plan, "auto", generation + 2 * segment)
    assert is_copied(plan, "copy", None)


def test_a_segment_that_has_to_be_copied_counts_before_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = store_plan(tmp_path)
    segment, generation = needed(plan)
    monkeypatch.setattr("anabranch_runtime.store.segments.is_steady", lambda fd: False)

    assert is_copied(plan, "auto", segment + generation)
    copied: list[int] = []
    monkeypatch.setattr("anabranch_runtime._native.Segment.copy", copied.append)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TooLarge, match=f"and a copy of their rows {segment}; .* left"):
        open_store(plan, "auto", segment + generation - 1, ())
    assert not copied
    assert len(os.listdir("/proc/self/fd")) == before
