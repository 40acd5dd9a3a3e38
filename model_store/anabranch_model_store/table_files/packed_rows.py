"""Rows whose keys and values are plain packed arrays: safetensors files and .npy files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.table_files.plain_arrays import PlainArray
from anabranch_model_store.table_files.sources import Keys, RowChunk, rows_per_chunk
from anabranch_wire.document_fields import KeyType, RowType
from anabranch_wire.errors import InvalidInput

__all__ = ["PackedRows", "packed_rows"]

_KEY_TYPES: Final[dict[str, KeyType]] = {"int64": "int64", "uint64": "uint64"}
_ROW_TYPES: Final[dict[str, RowType]] = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "int8"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedRows:
    """A `RowSource` over packed arrays.

    Attributes:
        values: [n, dim].
        dtype: of the numbers; the array of bf16 holds their bits, as uint16.
        keys: [n]; None: the file has none.
        scale: [n] for int8.
        bias: [n] for int8.
    """

    values: PlainArray
    dtype: RowType
    keys: PlainArray | None
    scale: PlainArray | None = None
    bias: PlainArray | None = None

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return self.values.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.values.shape[1]

    @property
    def key_dtype(self) -> KeyType | None:
        """How keys are written."""
        return None if self.keys is None else _KEY_TYPES[self.keys.dtype.name]

    def chunks(self) -> Iterator[RowChunk]:
        """Yield all rows; see `RowSource`."""
        step = rows_per_chunk(self.dim, self.dtype)
        for begin in range(0, self.rows, step):
            end = min(begin + step, self.rows)
            values = self.values.read(begin, end)
            yield RowChunk(
                begin,
                None if self.keys is None else _as_keys(self.keys.read(begin, end)),
                _widened(values) if self.dtype == "bf16" else values,  # type: ignore[arg-type]
                None if self.scale is None else self.scale.read(begin, end),  # type: ignore[arg-type]
                None if self.bias is None else self.bias.read(begin, end),  # type: ignore[arg-type]
            )


def packed_rows(
    what: str, values: PlainArray, dtype_name: str, others: dict[str, PlainArray]
) -> PackedRows:
    """Return rows, checked to fit together.

    Args:
        what: how messages name the file.
        values: the numbers.
        dtype_name: NumPy's name of their type, or `bfloat16`.
        others: `keys`, `scale`, `bias`, as far as they are there.

    Raises:
        InvalidInput: they do not; the message says what was expected and found.
    """
    dtype = _ROW_TYPES.get(dtype_name)
    keys = others.get("keys")
    wanted = {"scale", "bias"} if dtype == "int8" else set()
    if (
        dtype is None
        or len(values.shape) != 2
        or values.shape[1] < 1
        or set(others) - {"keys"} != wanted
        or any(array.shape != values.shape[:1] for array in others.values())
        or (keys is not None and keys.dtype.name not in _KEY_TYPES)
        or any(others[name].dtype.name != "float16" for name in wanted)
    ):
        found = {"values": (dtype_name, values.shape)} | {
            name: (array.dtype.name, array.shape) for name, array in others.items()
        }
        shown = ", ".join(f"{name} {kind} {list(shape)}" for name, (kind, shape) in found.items())
        raise InvalidInput(
            f"{what}: expected keys [n] of int64 or uint64, and values [n, dim] of float32, "
            "float16, bfloat16 or (with scale and bias, float16 [n]) int8; "
            f"found {shown}"
        )
    return PackedRows(values, dtype, keys, others.get("scale"), others.get("bias"))


def _as_keys(array: NDArray[np.generic]) -> Keys:
    return array.view(np.uint64)


def _widened(bits: NDArray[np.generic]) -> NDArray[np.float32]:
    """bfloat16 as float32: the same bits with zeros behind them."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
