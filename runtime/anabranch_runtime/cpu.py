"""What the processor under this process can do."""

from anabranch_runtime import _native

__all__ = ["kernel_isa"]


def kernel_isa() -> str:
    """Return the widest instruction set that the native kernels may use on this machine.

    One of `avx512`, `avx2`, `sse4.2`, `neon` and `portable`; it never changes while the process
    lives.
    """
    return _native.isa()
