"""Safetensors files with `keys` and `values`, and `scale` and `bias` for int8 rows."""

import json
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_model_store.table_files.packed_rows import PackedRows, packed_rows
from anabranch_model_store.table_files.plain_arrays import PlainArray
from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["open_safetensors"]

_ELEMENTS: Final = {
    "I64": "int64", "U64": "uint64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "I8": "int8",
}  # fmt: skip
"""Format's name of an element type -> NumPy's; NumPy has none for bfloat16."""
_NAMES: Final = frozenset(("keys", "values", "scale", "bias"))


def open_safetensors(path: Path, what: str) -> PackedRows:
    """Return the rows of a safetensors file.

    Args:
        path: the file.
        what: how messages name it.

    Raises:
        InvalidInput: it is no such file, is cut short, or holds other tensors.
        Unavailable: it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass  # the library proves that tensors lie inside the file and do not overlap
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_bytes))
    except (SafetensorError, ValueError) as error:
        raise InvalidInput(f"{what}: no safetensors file: {error}") from None
    except OSError as error:
        raise Unavailable(f"{what}: cannot be read: {error.strerror}") from None
    header.pop("__metadata__", None)
    if "values" not in header or not _NAMES.issuperset(header):
        raise InvalidInput(
            f"{what}: expected tensors keys and values (and scale and bias for int8); found "
            f"{', '.join(sorted(header)[:10]) or 'none'}"
        )
    begin = 8 + header_bytes
    arrays: dict[str, PlainArray] = {}
    for name, entry in header.items():
        element = _ELEMENTS.get(entry["dtype"])
        if element is None:
            raise InvalidInput(
                f"{what}: {name}: elements of {entry['dtype']}; expected one of "
                f"{', '.join(_ELEMENTS)}"
            )
        carrier = np.dtype("uint16" if element == "bfloat16" else element).newbyteorder("<")
        shape, offset = tuple(entry["shape"]), begin + entry["data_offsets"][0]
        arrays[name] = PlainArray(path, f"{what}: {name}", carrier, shape, offset)
    element = _ELEMENTS[header["values"]["dtype"]]
    return packed_rows(what, arrays.pop("values"), element, arrays)
