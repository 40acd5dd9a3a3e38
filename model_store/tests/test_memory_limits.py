from pathlib import Path

import pytest

from anabranch_model_store.memory import (
    Demand,
    Footprint,
    OutOfRoom,
    available_bytes,
    check_fits,
    must_give_way,
    times_out_of_memory,
)
from anabranch_wire.errors import TooLarge

MEMINFO = "MemTotal:       16000 kB\nMemFree:         100 kB\nMemAvailable:    9000 kB\n"


def system(root: Path, meminfo: str | None, limit: str | None = None, used: str = "0") -> Path:
    (root / "proc").mkdir(parents=True)
    (root / "sys/fs/cgroup").mkdir(parents=True)
    if meminfo is not None:
        (root / "proc/meminfo").write_text(meminfo)
    if limit is not None:
        (root / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        (root / "sys/fs/cgroup/memory.current").write_text(f"{used}\n")
        (root / "sys/fs/cgroup/memory.stat").write_text(
            "anon 900\nfile 800\nactive_file 100\ninactive_file 400\nunevictable 7\n"
        )
    return root


def test_the_kernel_or_the_control_group_says_what_is_left(tmp_path: Path) -> None:
    assert available_bytes(system(tmp_path / "a", MEMINFO)) == 9000 * 1024
    assert available_bytes(system(tmp_path / "b", MEMINFO, "max")) == 9000 * 1024
    assert available_bytes(system(tmp_path / "c", MEMINFO, "5000", "2000")) == 3500
    assert available_bytes(system(tmp_path / "d", MEMINFO, "5000", "6000")) == 0
    assert available_bytes(system(tmp_path / "e", None)) is None
    assert available_bytes(system(tmp_path / "f", "MemTotal: 1 kB\n")) is None
    assert (available_bytes() or 1) > 0


def test_what_cannot_fit_is_refused_with_the_numbers() -> None:
    check_fits(60, 40, 0, None)
    check_fits(60, 40, 100, 100)
    with pytest.raises(TooLarge, match=r"101 bytes; memory\.max_bytes allows 100") as too_large:
        check_fits(60, 41, 100, None)
    with pytest.raises(OutOfRoom, match="101 bytes; the machine has 100 left") as out_of_room:
        check_fits(60, 41, 0, 100)

    assert not isinstance(too_large.value, OutOfRoom)  # however much goes
    assert out_of_room.value.tables == 41


def test_a_version_is_weighed_with_what_every_worker_holds() -> None:
    demand = Demand(new=Footprint(10), served=Footprint(20), kept=Footprint(10), workers=4)

    assert not must_give_way(demand, 0, None)
    assert not must_give_way(demand, 160, 40)
    assert must_give_way(demand, 159, 40)  # bytes of four workers: 4 * (30 + 10)
    assert must_give_way(demand, 160, 39)
    assert must_give_way(demand, 120, 0)
    with pytest.raises(
        TooLarge,
        match=r"10 bytes in each of 4 workers beside 20 of what is served; "
        r"memory\.max_bytes allows 119 in all",
    ):
        must_give_way(demand, 119, None)


def test_tables_are_weighed_once_for_all_workers() -> None:
    new, served, kept = Footprint(10, 100), Footprint(20, 200), Footprint(10, 150)
    demand = Demand(new, served, kept, workers=4)

    assert not must_give_way(demand, 4 * 40 + 450, 4 * 10 + 100)
    assert must_give_way(demand, 4 * 40 + 449, 4 * 10 + 100)
    assert must_give_way(demand, 4 * 30 + 300, 0)
    assert must_give_way(Demand(Footprint(0, 190), served, kept, workers=4), 0, 0)
    with pytest.raises(
        TooLarge,
        match=r"10 bytes in each of 4 workers and 100 for its tables beside 20 and 200 of what is "
        r"served; memory\.max_bytes allows 419 in all",
    ):
        must_give_way(demand, 4 * 30 + 299, None)
    with pytest.raises(TooLarge, match=r"and 191 for its tables .* the machine has 0 left"):
        must_give_way(Demand(Footprint(0, 191), served, kept, workers=4), 0, 0)


def test_a_version_that_the_machine_has_no_room_for_is_refused_with_the_numbers() -> None:
    with pytest.raises(TooLarge, match=r"10 bytes in 1 worker beside .* the machine has 9 left"):
        must_give_way(Demand(Footprint(10), Footprint(5), Footprint(0), workers=1), 0, 9)
    with pytest.raises(TooLarge, match=r"20 bytes in each of 2 workers .* the machine has 0 left"):
        must_give_way(Demand(Footprint(20), Footprint(0), Footprint(5), workers=2), 1000, 0)


def test_processes_that_the_kernel_ended_are_counted(tmp_path: Path) -> None:
    assert times_out_of_memory(tmp_path) == 0
    system(tmp_path, None)
    (tmp_path / "proc/vmstat").write_text("pgfault 5\noom_kill 2\n")
    assert times_out_of_memory(tmp_path) == 2
    (tmp_path / "sys/fs/cgroup/memory.events").write_text("oom 9\noom_kill 3\noom_group_kill 7\n")
    assert times_out_of_memory(tmp_path) == 5
