"""NumPy files: values in `NAME.npy`, keys beside them in `NAME.keys.npy`.

For int8 rows `NAME.scale.npy` and `NAME.bias.npy` lie there too. Nothing is unpickled.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from numpy.lib import format as npy_format

from anabranch_model_store.table_files.packed_rows import PackedRows, packed_rows
from anabranch_model_store.table_files.plain_arrays import PlainArray
from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["PARTS", "open_npy", "part_of"]

PARTS: Final = ("keys", "scale", "bias")
"""What may lie beside the values, by the word before `.npy`."""
_MALFORMED: Final = (ValueError, SyntaxError, TypeError, KeyError, EOFError, OverflowError)


def part_of(file: str, part: str) -> str:
    """Return the name of the file with another part of the table whose values are in `file`."""
    return f"{file.removesuffix('.npy')}.{part}.npy"


def open_npy(path: Path, what: str, parts: Mapping[str, Path]) -> PackedRows:
    """Return the rows of a table in .npy files.

    Args:
        path: of the values.
        what: how messages name that file.
        parts: `keys`, `scale`, `bias` -> path, as far as they are there.

    Raises:
        InvalidInput: a file is no .npy file, is cut short, or does not fit the others.
        Unavailable: one cannot be read.
    """
    values = _array(path, what)
    others = {part: _array(file, part_of(what, part)) for part, file in parts.items()}
    return packed_rows(what, values, values.dtype.name, others)


def _array(path: Path, what: str) -> PlainArray:
    try:
        with path.open("rb") as file:
            version = npy_format.read_magic(file)
            if version == (1, 0):
                shape, fortran_order, dtype = npy_format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, fortran_order, dtype = npy_format.read_array_header_2_0(file)
            else:
                raise InvalidInput(f"{what}: .npy format {version}; expected 1.0 or 2.0")
            offset = file.tell()
        size = path.stat().st_size
    except _MALFORMED as error:
        raise InvalidInput(f"{what}: no .npy file: {str(error)[:200]}") from None
    except OSError as error:
        raise Unavailable(f"{what}: cannot be read: {error.strerror}") from None
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise InvalidInput(f"{what}: elements are Python objects or records; expected plain ones")
    if fortran_order and len(shape) > 1:
        raise InvalidInput(
            f"{what}: rows do not lie one after the other (Fortran order); save "
            "numpy.ascontiguousarray(values)"
        )
    if (
        not shape
        or min(shape) < 0
        or not dtype.itemsize
        or math.prod(shape) * dtype.itemsize != size - offset
    ):
        raise InvalidInput(f"{what}: {size - offset} bytes do not hold {dtype.name}{list(shape)}")
    return PlainArray(path, what, dtype, shape, offset)
