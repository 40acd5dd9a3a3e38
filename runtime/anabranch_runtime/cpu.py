"""What the processor under this process can do."""

import logging
import os
from collections.abc import Collection, Sequence

from anabranch_runtime import _native
from anabranch_wire.errors import InvalidInput

__all__ = ["check_cpusets", "kernel_isa", "pin_thread"]

_log = logging.getLogger(__name__)


def kernel_isa() -> str:
    """Return the widest instruction set that the native kernels may use on this machine.

    One of `avx512`, `avx2`, `sse4.2`, `neon` and `portable`; it never changes while the process
    lives.
    """
    return _native.isa()


def check_cpusets(cpusets: Sequence[Collection[int]]) -> None:
    """Check that this process may use all these processors.

    Raises:
        InvalidInput: it may not; names them and those that it may use.
    """
    allowed = os.sched_getaffinity(os.getpid())
    wanted = frozenset[int]().union(*cpusets)
    if not wanted <= allowed:
        raise InvalidInput(
            f"executors.cpusets: processors {_listed(wanted - allowed)} are not for this process; "
            f"expected some of {_listed(allowed)} (its affinity, which cgroups and taskset set)"
        )


def pin_thread(cpus: Collection[int]) -> None:
    """Keep the calling thread to these processors; where that fails, it runs where it may."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        _log.warning(
            "a thread could not be kept to processors %s: %s",
            _listed(cpus),
            error.strerror,
            extra={"event": "not_pinned"},
        )


def _listed(cpus: Collection[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))
