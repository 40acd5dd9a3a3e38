"""Files of a delta: tensors are written in a stream and read where they lie.

Rows of a delta may be gathered from many files and be larger than memory; so a tensor is written
part by part, and its digest is taken as it is written.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_wire.document_fields import ListedFile
from anabranch_wire.tensor_files import Tensor, file_parts, read_tensors

__all__ = ["adopt_file", "read", "write"]

_BLOCK: Final = 1 << 20


def write(folder: Path, path: str, tensors: Mapping[str, Tensor]) -> ListedFile:
    """Write a file that is not there yet, and return it as documents list it; it is on disk then.

    Raises:
        OSError: the file system refused.
    """
    digest = hashlib.sha256()
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        for part in file_parts(tensors):
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
        return ListedFile(path=path, bytes=file.tell(), sha256=digest.hexdigest())


def read(path: Path, what: str) -> dict[str, Tensor]:
    """Return the tensors of a file; each has one part, read-only, in the mapped file.

    Raises:
        InvalidInput: it is no such file; the message begins with `what`.
        OSError: it cannot be read.
    """
    is_empty = not path.stat().st_size  # of nothing there is no map
    data = np.empty(0, np.uint8) if is_empty else np.asarray(np.memmap(path, np.uint8, "r"))
    return read_tensors(data, what)


def adopt_file(folder: Path, path: str) -> ListedFile:
    """Return a file that lies in a folder as documents list it; it is on disk then.

    Raises:
        OSError: the file system refused.
    """
    with (folder / path).open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK):
            digest.update(block)
        os.fsync(file.fileno())
        return ListedFile(path=path, bytes=file.tell(), sha256=digest.hexdigest())
