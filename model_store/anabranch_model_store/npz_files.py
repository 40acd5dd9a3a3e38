"""Arrays from .npz files that nobody vouches for: sizes are proven before anything is allocated."""

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Final

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["MAX_BYTES", "read_npz"]

MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_MEMBERS: Final = 4096
_SUFFIX: Final = ".npy"
_MALFORMED: Final = (
    zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, OSError, RuntimeError,
    NotImplementedError, SyntaxError, TypeError, OverflowError,
)  # fmt: skip
"""What zipfile and NumPy's header parser raise on files that are not what they seem."""


def read_npz(path: Path, what: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of an .npz file by name, little-endian; nothing is unpickled.

    Args:
        path: the file.
        what: how messages name it.

    Raises:
        TooLarge: more than 256 MiB uncompressed, or more than 4,096 arrays.
        InvalidInput: it is no .npz file, is damaged, or an array holds Python objects or records.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if total > MAX_BYTES or len(members) > _MAX_MEMBERS:
                raise TooLarge(
                    f"{what}: {len(members)} arrays of {total} bytes; "
                    f"at most {_MAX_MEMBERS} and {MAX_BYTES}"
                )
            return {
                member.filename.removesuffix(_SUFFIX): _read_npy(
                    archive.read(member), f"{what}: {member.filename[:120]!r}"
                )
                for member in members
            }
    except _MALFORMED as error:
        raise InvalidInput(f"{what}: no .npz file: {str(error)[:200]}") from None


def _read_npy(data: bytes, what: str) -> NDArray[np.generic]:
    file = io.BytesIO(data)
    version = npy_format.read_magic(file)
    if version == (1, 0):
        shape, fortran_order, dtype = npy_format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran_order, dtype = npy_format.read_array_header_2_0(file)
    else:
        raise InvalidInput(f"{what}: .npy format {version}; expected 1.0 or 2.0")
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise InvalidInput(f"{what}: elements are Python objects or records; expected plain ones")
    begin, count = file.tell(), math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize != len(data) - begin:
        raise InvalidInput(
            f"{what}: {len(data) - begin} bytes do not hold {dtype.name}{list(shape)}"
        )
    flat: NDArray[np.generic] = (
        np.frombuffer(data, dtype, count, begin) if dtype.itemsize else np.empty(count, dtype)
    )
    array = flat.reshape(shape, order="F" if fortran_order else "C")
    return array.astype(dtype.newbyteorder("<"), copy=False)
