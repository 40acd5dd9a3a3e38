"""The files of one delta, read once: what was hashed is what is used, whatever becomes of the file.

Small files are read into memory. Large ones are mapped, after their size was found to be right.
"""

import hashlib
import mmap
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.containment import resolve_file
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_wire.delta import FILE_NAME, Delta
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable
from anabranch_wire.tensor_files import Tensor, read_tensors

__all__ = ["DeltaFiles", "read_files"]

_MAPPED_BYTES: Final = 256 << 20
_TOGETHER_BYTES: Final = 8 << 20
"""From so many bytes on files are hashed by several threads."""
_THREADS: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class DeltaFiles:
    """A delta whose files are what it says.

    Attributes:
        delta: as it was published.
        folder: where its files lie.
        data: path -> all bytes of a file that was read.
    """

    delta: Delta
    folder: Path
    data: Mapping[str, NDArray[np.uint8]]

    def tensors(self, path: str) -> dict[str, Tensor]:
        """Return the tensors of a safetensors file; each is a view of the bytes that were hashed.

        Raises:
            DeltaCorrupt: it is no such file.
        """
        try:
            return read_tensors(self.data[path], path)
        except InvalidInput as error:
            raise DeltaCorrupt("invalid", error.message) from None


def read_files(folder: Path, delta: Delta, names: Collection[str] | None = None) -> DeltaFiles:
    """Read files of a delta, and prove that they are those that were published.

    Files that the delta does not list are left alone.

    Args:
        folder: of the attempt.
        delta: what lies there.
        names: paths of the files that are needed; None for all of them.

    Raises:
        DeltaCorrupt: a file is missing or differs; the message names it, expected and found.
        Unavailable: a file cannot be read.
    """
    listed = [one for one in delta.files if names is None or one.path in names]
    paths = [_sized(folder, one) for one in listed]  # before gigabytes are hashed
    if len(paths) > 1 and sum(one.bytes for one in listed) >= _TOGETHER_BYTES:
        with ThreadPoolExecutor(_THREADS) as threads:
            contents = list(threads.map(_hashed, paths, listed))
    else:
        contents = list(map(_hashed, paths, listed))
    return DeltaFiles(
        delta, folder, {one.path: data for one, data in zip(listed, contents, strict=True)}
    )


def _sized(folder: Path, listed: ListedFile) -> Path:
    """Return the path of a file that has the right size."""
    try:
        path = resolve_file(folder, listed.path)
    except NotFound:
        raise DeltaCorrupt(
            "truncated", f"{listed.path}: missing; {FILE_NAME} names it with {listed.bytes} bytes"
        ) from None
    except InvalidInput as error:
        raise DeltaCorrupt("invalid", error.message) from None
    found = path.stat().st_size
    if found != listed.bytes:
        raise DeltaCorrupt(
            "truncated", f"{listed.path}: expected {listed.bytes} bytes, found {found}"
        )
    return path


def _hashed(path: Path, listed: ListedFile) -> NDArray[np.uint8]:
    """Return the bytes of a file after their digest was found to be right."""
    try:
        if listed.bytes < _MAPPED_BYTES:
            data = np.fromfile(path, np.uint8, listed.bytes)
        else:
            with path.open("rb") as file:
                memory = mmap.mmap(file.fileno(), listed.bytes, access=mmap.ACCESS_READ)
            data = np.frombuffer(memory, np.uint8)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it became shorter"
        raise Unavailable(f"{listed.path}: cannot be read: {why}") from None
    digest = hashlib.sha256(data.data).hexdigest()
    if listed.sha256 is not None and digest != listed.sha256:
        raise DeltaCorrupt(
            "checksum", f"{listed.path}: expected sha256 {listed.sha256}, found {digest}"
        )
    return data
