"""A fresh generation is brought to where rows were, in as much room as that takes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.store import Capacity, Change, Segment
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_replay import replayed
from anabranch_testing.marked_rows import DIM, ROWS, TABLES, marked_plan, marking
from anabranch_wire.errors import Unavailable

SMALL = [Capacity(arena_rows=ROWS // 4, keys=ROWS)] * len(TABLES)
ANY = [2**31 - 1] * len(TABLES)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    plan = marked_plan(tmp_path, 1).store
    assert plan is not None
    return Segment.open(Path(plan.segment))


def inserting(count: int) -> Callable[[Change], None]:
    """Return what gives the first table so many keys that it did not have."""

    def fill(change: Change) -> None:
        change.upsert(0, np.arange(1, count + 1), np.ones((count, DIM), np.float32))

    return fill


def test_changes_that_do_not_fit_get_twice_the_room_until_they_do(segment: Segment) -> None:
    writer, room = replayed(segment, SMALL, ANY, [marking(1.0), marking(2.0)], None)

    assert writer.version == 3
    assert [one.arena_rows for one in room] == [2 * ROWS] * len(TABLES)


def test_a_source_that_cannot_be_had_is_no_lack_of_room(segment: Segment) -> None:
    calls: list[int] = []

    def fill(change: Change) -> None:
        calls.append(change.version)
        raise Unavailable("the delta cannot be read")

    with pytest.raises(Unavailable, match="the delta cannot be read"):
        replayed(segment, SMALL, ANY, [fill], 1 << 26)

    assert calls == [2]


def test_keys_beyond_what_a_table_may_have_are_refused(segment: Segment) -> None:
    most = [ROWS + 10] * len(TABLES)

    writer, room = replayed(segment, SMALL, most, [inserting(10)], None)
    assert writer.stats(0).live_keys == ROWS + 10
    assert [one.keys for one in room] == most

    with pytest.raises(NoRoom, match=f"it has room for {ROWS + 10} keys"):
        replayed(segment, SMALL, most, [inserting(11)], None)
