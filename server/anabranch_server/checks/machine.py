"""What the machine or the container gives: kernel, processors, memory, descriptors."""

import resource
from typing import Final

from anabranch_server.checks.check import Check

__all__ = ["check_cores", "check_instructions", "check_kernel", "check_memory", "check_open_files"]

_MIN_KERNEL: Final = (5, 3)  # pidfd_open; SO_REUSEPORT and memfd seals are older
_WANTED_FILES: Final = 21_000  # limits.max_connections and what the server opens itself
_MIN_FILES: Final = 1024
_WANTED_BYTES: Final = 1 << 30  # a supervisor, a worker and a loader without a model take half


def check_kernel(system: str, release: str) -> Check:
    """The operating system."""
    found = f"{system} {release}"
    if system != "Linux":
        return Check("kernel", "failure", found, "run the server on Linux")
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < _MIN_KERNEL:
        return Check("kernel", "failure", found, "use Linux 5.3 or newer")
    return Check("kernel", "ok", found)


def check_instructions(cpuinfo: str, machine: str) -> Check:
    """Vector instructions."""
    flags = next(
        (
            line.split(":", 1)[1].split()
            for line in cpuinfo.splitlines()
            if line.startswith("flags")
        ),
        [],
    )
    present = [
        name for name in ("avx2", "fma", "avx512f", "avx512_vnni", "amx_tile") if name in flags
    ]
    found = f"{machine} {' '.join(present)}".strip()
    if machine == "x86_64" and "avx2" not in flags:
        remedy = "use a CPU, or a virtual machine type, with AVX2: without it lookups are slow"
        return Check("instructions", "warning", found, remedy)
    return Check("instructions", "ok", found)


def check_cores(usable: int, visible: int) -> Check:
    """CPU cores, after affinity and quota."""
    if usable < visible:
        found = f"{usable} usable of {visible} visible: a CPU quota applies"
        remedy = "give the container whole cores, and its CPU affinity as many of them"
        return Check("cpu cores", "warning", found, remedy)
    return Check("cpu cores", "ok", str(usable))


def check_memory(available: int | None) -> Check:
    """Memory that is left, by machine and control group."""
    if available is None:
        return Check("memory", "ok", "not told by the system")
    found = f"{available / (1 << 30):.1f} GiB available"
    if available < _WANTED_BYTES:
        remedy = "give it 1 GiB and what the models take, twice: a new version loads beside the old"
        return Check("memory", "warning", found, remedy)
    return Check("memory", "ok", found)


def check_open_files(soft: int, hard: int) -> Check:
    """The limit on descriptors; the server raises its soft limit to the hard one."""
    found = f"soft {_count(soft)}, hard {_count(hard)}"
    remedy = (
        f"allow {_WANTED_FILES} open files (`ulimit -Hn`, LimitNOFILE=) "
        "or lower limits.max_connections"
    )
    if hard != resource.RLIM_INFINITY and hard < _MIN_FILES:
        return Check("open files", "failure", found, remedy)
    if hard != resource.RLIM_INFINITY and hard < _WANTED_FILES:
        return Check("open files", "warning", found, remedy)
    return Check("open files", "ok", found)


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
