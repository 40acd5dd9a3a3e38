"""Embedding tables that lie beside the ONNX file, as safetensors with `keys` and `values`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from anabranch_wire.document_fields import KeyType, RowType
from anabranch_wire.errors import InvalidInput
from anabranch_wire.manifest import TableFile

__all__ = ["Rows", "describe", "write"]

_KEY_TYPES: Final[dict[str, KeyType]] = {"I64": "int64", "U64": "uint64"}
_ROW_TYPES: Final[dict[str, RowType]] = {"F32": "f32", "F16": "f16", "BF16": "bf16", "I8": "int8"}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of one table, in memory.

    Attributes:
        keys: [n] int64 or uint64.
        values: [n, dim] float32 or float16.
    """

    keys: NDArray[np.int64] | NDArray[np.uint64]
    values: NDArray[np.float32] | NDArray[np.float16]


def write(path: Path, rows: Rows) -> None:
    """Write `rows` as a table file."""
    keys, values = rows.keys, rows.values
    # The library writes the memory of an array as it lies: it must be packed and little-endian.
    packed = {
        "keys": np.ascontiguousarray(keys, keys.dtype.newbyteorder("<")),
        "values": np.ascontiguousarray(values, values.dtype.newbyteorder("<")),
    }
    save_file(packed, path)


def describe(path: Path, name: str, file: str) -> TableFile:
    """Return the manifest's entry for a table file, from its header.

    Args:
        path: the file, which is there.
        name: of the table.
        file: how the manifest names the file.

    Raises:
        InvalidInput: it is no safetensors file with `keys` [n] of I64 or U64 and `values` [n, dim]
            of F32, F16, BF16 or (with `scale` and `bias`, F16 [n]) I8.
    """
    try:
        with safe_open(path, framework="numpy") as tensors:
            slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"table {name!r}: not safetensors: {error}") from None
    found = {key: (str(s.get_dtype()), tuple(s.get_shape())) for key, s in slices.items()}
    key_type, key_shape = found.pop("keys", ("", ()))
    row_type, row_shape = found.pop("values", ("", ()))
    rest = {key: ("F16", key_shape) for key in ("scale", "bias")} if row_type == "I8" else {}
    if (
        key_type not in _KEY_TYPES
        or row_type not in _ROW_TYPES
        or len(key_shape) != 1
        or len(row_shape) != 2
        or row_shape[0] != key_shape[0]
        or row_shape[1] < 1
        or found != rest
    ):
        raise InvalidInput(
            f"table {name!r}: expected keys [n] of I64 or U64 and values [n, dim] of F32, F16, "
            f"BF16 or (with scale and bias, F16 [n]) I8; found keys {key_type} {list(key_shape)}, "
            f"values {row_type} {list(row_shape)}, {sorted(found) or 'nothing else'}"
        )
    return TableFile(
        name=name,
        file=file,
        rows=row_shape[0],
        dim=row_shape[1],
        dtype=_ROW_TYPES[row_type],
        key_dtype=_KEY_TYPES[key_type],
    )
