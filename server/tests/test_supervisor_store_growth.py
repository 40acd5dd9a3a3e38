"""When a generation is short of room, and what the next one has."""

import pytest

from anabranch_runtime.store import Capacity, TableStats
from anabranch_server.supervisor.store_growth import grown, is_short


def stats(
    *, live: int = 100, used: int = 0, retired: int = 0, slots: int = 200, dead: int = 0
) -> TableStats:
    return TableStats(live, 1000, used, retired, slots, live + dead, live / max(slots, 1), 1.0)


ROOM = Capacity(arena_rows=1000, keys=120)
ANY = 2**31 - 1


@pytest.mark.parametrize(
    ("table", "incoming", "short"),
    [
        (stats(used=750), {}, False),
        (stats(used=751), {}, True),
        (stats(used=751), {0: 249}, False),
        (stats(used=751), {0: 250}, True),
        (stats(used=0), {0: 1001}, True),
        (stats(used=999), {1: 5}, False),
        (stats(live=100, dead=40), {}, False),
        (stats(live=100, dead=41), {}, True),
        (stats(live=100, dead=41), {0: 1}, True),
        (stats(slots=0, live=0), {}, False),
    ],
)
def test_a_generation_is_short_when_it_is_nearly_full_or_a_change_does_not_fit(
    table: TableStats, incoming: dict[int, int], short: bool
) -> None:
    roomy = stats()

    assert is_short([table, roomy], [ROOM, ROOM], incoming) is short


def test_what_is_retired_or_dead_needs_no_more_room() -> None:
    (room,) = grown([stats(used=990, retired=900, dead=60)], [ROOM], [ANY])

    assert room == ROOM


def test_what_lives_and_what_comes_fits_twice() -> None:
    (room,) = grown([stats(used=900)], [ROOM], [ANY], {0: 300})

    assert room.arena_rows == 2400
    assert room.keys == 500


def test_other_tables_keep_their_room() -> None:
    rooms = grown([stats(used=900), stats(used=10)], [ROOM, ROOM], [ANY, ANY])

    assert rooms == (Capacity(1800, 120), ROOM)


@pytest.mark.parametrize(
    ("most", "keys"), [(ANY, 500), (450, 450), (200, 200), (120, 120), (7, 120)]
)
def test_a_table_gets_no_more_keys_than_it_may_have(most: int, keys: int) -> None:
    (room,) = grown([stats(used=900)], [ROOM], [most], {0: 300})

    assert room == Capacity(2400, keys)
