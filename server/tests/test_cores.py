import os
from pathlib import Path

import pytest

from anabranch_server.cores import usable_cores, workers_for


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def test_affinity_counts_without_groups(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "missing") == 8


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_unified_quota_cuts(tmp_path: Path, proc: Path, quota: str, cores: int) -> None:
    group = tmp_path / "cgroup" / "pod" / "container"
    group.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/pod/container\n")
    (group / "cpu.max").write_text(quota + "\n")

    assert usable_cores(tmp_path / "cgroup", proc) == cores


def test_the_tightest_group_above_counts(tmp_path: Path, proc: Path) -> None:
    root = tmp_path / "cgroup"
    (root / "pod" / "container").mkdir(parents=True)
    (proc / "cgroup").write_text("0::/pod/container\n")
    (root / "pod" / "cpu.max").write_text("300000 100000")
    (root / "pod" / "container" / "cpu.max").write_text("max 100000")

    assert usable_cores(root, proc) == 3


def test_legacy_quota_cuts(tmp_path: Path, proc: Path) -> None:
    root = tmp_path / "cgroup"
    (root / "cpu").mkdir(parents=True)
    (proc / "cgroup").write_text("3:cpu,cpuacct:/docker/abc\n2:memory:/\n")
    (root / "cpu" / "cpu.cfs_quota_us").write_text("400000")
    (root / "cpu" / "cpu.cfs_period_us").write_text("100000")

    assert usable_cores(root, proc) == 4

    (root / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert usable_cores(root, proc) == 8


def test_eight_cores_share_a_worker() -> None:
    assert [workers_for(cores) for cores in (1, 8, 9, 16, 17)] == [1, 1, 2, 2, 3]
