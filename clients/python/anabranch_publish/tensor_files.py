"""Safetensors files, written in a stream and read where they lie; no number changes on the way.

Rows of a delta may be gathered from many files and be larger than memory; so a tensor is written
part by part, and its digest is taken as it is written. bf16 is 16 bits here, like the others.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import InvalidInput

__all__ = ["NUMPY_TYPES", "Tensor", "adopt_file", "file_array", "read", "write"]

NUMPY_TYPES: Final[Mapping[str, str]] = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
"""Datatype of the format -> how NumPy holds it. BF16 is its bits."""

_LENGTH_BYTES: Final = 8
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor of a file.

    Attributes:
        dtype: one of `NUMPY_TYPES`.
        shape: of the whole.
        parts: arrays that lie one behind the other in it; each has the dtype.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: Iterable[NDArray[np.generic]]

    @property
    def bytes(self) -> int:
        """Its size."""
        size = np.dtype(NUMPY_TYPES[self.dtype]).itemsize
        for axis in self.shape:
            size *= axis
        return size


def write(folder: Path, path: str, tensors: Mapping[str, Tensor]) -> ListedFile:
    """Write a file that is not there yet, and return it as documents list it; it is on disk then.

    Raises:
        OSError: the file system refused.
    """
    header: dict[str, object] = {}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.bytes
        header[name] = {
            "dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end],
        }  # fmt: skip
        begin = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    digest = hashlib.sha256()
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        for begun in (len(text).to_bytes(_LENGTH_BYTES, "little"), text):
            file.write(begun)
            digest.update(begun)
        for tensor in tensors.values():
            for part in tensor.parts:
                packed = np.ascontiguousarray(part, NUMPY_TYPES[tensor.dtype]).reshape(-1)
                data = packed.view(np.uint8).data
                file.write(data)
                digest.update(data)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    assert size == _LENGTH_BYTES + len(text) + begin, "parts do not make up their tensor"
    return ListedFile(path=path, bytes=size, sha256=digest.hexdigest())


def read(path: Path, what: str) -> dict[str, Tensor]:
    """Return the tensors of a file; each has one part, read-only, in the mapped file.

    Raises:
        InvalidInput: it is no such file; the message begins with `what`.
        OSError: it cannot be read.
    """
    try:
        with safe_open(path, framework="numpy"):
            pass  # it looks at the header, the offsets and the size
    except SafetensorError as error:
        raise InvalidInput(f"{what}: not safetensors: {error}") from None
    data = np.memmap(path, np.uint8, "r")
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
    found: dict[str, Tensor] = {}
    header = json.loads(data[_LENGTH_BYTES:start].tobytes())
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in NUMPY_TYPES:
            raise InvalidInput(
                f"{what}: tensor {name!r} is of {entry['dtype']}, which nobody reads"
            )
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        part = np.frombuffer(
            data, NUMPY_TYPES[entry["dtype"]], int(np.prod(shape, dtype=np.int64)), start + begin
        ).reshape(shape)
        assert part.nbytes == end - begin
        found[name] = Tensor(entry["dtype"], shape, (part,))
    return found


def file_array(tensor: Tensor) -> NDArray[np.generic]:
    """Return the one part of a tensor that was read."""
    (part,) = tensor.parts
    return part


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
