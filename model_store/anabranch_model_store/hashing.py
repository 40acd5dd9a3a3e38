"""SHA-256 of files and of folders, in blocks, so that size costs time but no memory."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["file_sha256", "folder_identity"]

_BLOCK: Final = 1 << 20


def file_sha256(path: Path) -> str:
    """Return the digest of a file's bytes, 64 hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def folder_identity(digests: Mapping[str, str]) -> str:
    """Return the identity of a version without a manifest, `sha256:` and 64 digits.

    It is the digest of one line `PATH NUL DIGEST LF` for each file, in the order of the UTF-8 bytes
    of the paths.

    Args:
        digests: path relative to the version folder -> SHA-256 of the file.
    """
    digest = hashlib.sha256()
    for path in sorted(digests, key=str.encode):
        digest.update(f"{path}\0{digests[path]}\n".encode())
    return f"sha256:{digest.hexdigest()}"
