"""Looking at a machine before a server has to: what is there, what is missing, what to do.

Each check is one function that returns one `Check` and never raises; a `failure` keeps the server
from starting, a `warning` from doing its best.
"""

import os
import platform
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from anabranch_runtime.backends.ort_library import import_onnxruntime
from anabranch_server.config import Folders
from anabranch_server.cores import usable_cores
from anabranch_server.folders import own_folder
from anabranch_wire.errors import AnabranchError

__all__ = ["Check", "Report", "examine"]

Status = Literal["ok", "warning", "failure"]

_MIN_PYTHON: Final = (3, 11)
_MIN_KERNEL: Final = (5, 3)  # pidfd_open; SO_REUSEPORT and memfd seals are older
_WANTED_FILES: Final = 21_000  # limits.max_connections and what the server opens itself
_MIN_FILES: Final = 1024


class Check(msgspec.Struct, frozen=True):
    """What one look found.

    Attributes:
        name: what was looked at.
        status: what it means for a server.
        found: what is there.
        remedy: what to do; empty when it is fine.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


class Report(msgspec.Struct, frozen=True):
    """All checks, in the order they were made."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether a server can run here."""
        return all(check.status != "failure" for check in self.checks)


def examine(folders: Folders) -> Report:
    """Look at this machine, user and environment.

    Args:
        folders: where the server would keep its files.
    """
    looks: tuple[Callable[[], Check], ...] = (
        lambda: check_python(sys.version_info[:3]),
        lambda: check_kernel(platform.system(), platform.release()),
        check_native_core,
        check_onnxruntime,
        lambda: check_instructions(_read(Path("/proc/cpuinfo")), platform.machine()),
        lambda: check_cores(usable_cores(), len(os.sched_getaffinity(0))),
        lambda: check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        check_shared_memory,
        check_port_sharing,
        lambda: check_folder("cache folder", folders.cache),
        lambda: check_folder("state folder", folders.state),
        lambda: check_folder("run folder", folders.run.parent),
    )
    return Report(tuple(look() for look in looks))


def check_python(version: tuple[int, int, int]) -> Check:
    """The interpreter."""
    found = ".".join(map(str, version))
    if version < _MIN_PYTHON:
        return Check("python", "failure", found, "install Python 3.11 or newer")
    return Check("python", "ok", found)


def check_kernel(system: str, release: str) -> Check:
    """The operating system."""
    found = f"{system} {release}"
    if system != "Linux":
        return Check("kernel", "failure", found, "run the server on Linux")
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < _MIN_KERNEL:
        return Check("kernel", "failure", found, "use Linux 5.3 or newer")
    return Check("kernel", "ok", found)


def check_native_core() -> Check:
    """The compiled part of this package."""
    try:
        from anabranch_runtime.cpu import kernel_isa

        kernels = kernel_isa()
    except ImportError as error:
        remedy = "install the wheel for this Python and CPU, or build it with `make setup`"
        return Check("native core", "failure", str(error), remedy)
    return Check("native core", "ok", f"kernels for {kernels}")


def check_onnxruntime() -> Check:
    """The library that runs dense graphs: exactly one of its two distributions."""
    try:
        library = import_onnxruntime()
    except AnabranchError as error:
        found, _, remedy = error.message.partition(": ")
        return Check("onnxruntime", "failure", found, remedy)
    providers = ", ".join(library.get_available_providers())
    return Check("onnxruntime", "ok", f"{library.__version__} ({providers})")


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


def check_shared_memory() -> Check:
    """Anonymous shared memory, which carries counters and tables between processes."""
    try:
        descriptor = os.memfd_create("doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, 1 << 20)
        finally:
            os.close(descriptor)
    except OSError as error:
        remedy = "allow memfd_create in the sandbox or seccomp profile"
        return Check("shared memory", "failure", f"memfd: {error.strerror}", remedy)
    return Check("shared memory", "ok", "memfd with seals")


def check_port_sharing() -> Check:
    """Listening on one port from several sockets."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.bind(("127.0.0.1", 0))
            probe.listen(1)
    except OSError as error:
        remedy = "allow SO_REUSEPORT and listening on loopback in the sandbox"
        return Check("port sharing", "failure", str(error.strerror), remedy)
    return Check("port sharing", "ok", "SO_REUSEPORT")


def check_folder(name: str, path: Path) -> Check:
    """One of the server's own folders: private and writable."""
    try:
        own_folder(path)
    except AnabranchError as error:
        setting = f"--{name.split()[0]}-dir"
        return Check(name, "failure", error.message, f"name another with {setting}")
    if not os.access(path, os.W_OK | os.X_OK):
        return Check(name, "failure", f"{path} is not writable", "make it writable")
    return Check(name, "ok", str(path))


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
