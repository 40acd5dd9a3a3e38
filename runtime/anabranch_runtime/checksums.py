"""Checksums of bytes at rest and in shared memory."""

from anabranch_runtime._native import crc32c

__all__ = ["crc32c"]
