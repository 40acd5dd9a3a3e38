"""How many CPU cores this process may really use: affinity and control groups respected."""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["usable_cores", "workers_for"]

_CORES_PER_WORKER = 8


def usable_cores(cgroups: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc/self")) -> int:
    """Return the number of cores, at least 1: the affinity mask, cut by the tightest CPU quota.

    A quota of a fraction is rounded down: one thread more than whole cores would be throttled.

    Args:
        cgroups: where the control group hierarchy is mounted.
        proc: the process's folder in the process file system.
    """
    cores = len(os.sched_getaffinity(0))
    for quota in _quotas(cgroups, proc):
        cores = min(cores, int(quota))
    return max(cores, 1)


def workers_for(cores: int) -> int:
    """Return how many workers share `cores` best: one per 8, rounded up."""
    return -(-cores // _CORES_PER_WORKER)


def _quotas(cgroups: Path, proc: Path) -> Iterator[float]:
    """Yield the CPU quotas, in cores, of the process's groups and of all groups above them."""
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if not controllers:
            root, read = cgroups, _unified_quota
        elif "cpu" in names:
            root, read = cgroups / "cpu", _legacy_quota
        else:
            continue
        group = root / path.strip("/")
        # In a container the path may be the host's: the mounted root is then the own group.
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            quota = read(folder)
            if quota is not None:
                yield quota


def _unified_quota(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _legacy_quota(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
