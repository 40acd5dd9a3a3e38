from pathlib import Path

import pytest

from anabranch_model_store.memory import available_bytes, check_fits
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
    check_fits(100, 0, None)
    check_fits(100, 100, 100)
    with pytest.raises(TooLarge, match=r"101 bytes; memory\.max_bytes allows 100"):
        check_fits(101, 100, None)
    with pytest.raises(TooLarge, match="101 bytes; the machine has 100 left"):
        check_fits(101, 0, 100)
