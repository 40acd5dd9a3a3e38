"""Datatypes and tensor declarations of the Open Inference Protocol, as values.

Every package that names a tensor does it with a `TensorSpec`; the datatype names are those of the
protocol (Triton's `BF16` included), and `BYTES` is the only one without a fixed width.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

__all__ = ["DATATYPES", "Datatype", "TensorSpec", "datatype_of"]

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
]  # fmt: skip

DATATYPES: Final[Mapping[Datatype, np.dtype[np.generic]]] = MappingProxyType(
    {
        "BOOL": np.dtype(np.bool_),
        "UINT8": np.dtype("<u1"),
        "UINT16": np.dtype("<u2"),
        "UINT32": np.dtype("<u4"),
        "UINT64": np.dtype("<u8"),
        "INT8": np.dtype("<i1"),
        "INT16": np.dtype("<i2"),
        "INT32": np.dtype("<i4"),
        "INT64": np.dtype("<i8"),
        "FP16": np.dtype("<f2"),
        "FP32": np.dtype("<f4"),
        "FP64": np.dtype("<f8"),
        # NumPy has no bfloat16: its bits travel as 16-bit integers.
        "BF16": np.dtype("<u2"),
        # Elements are Python `bytes` objects.
        "BYTES": np.dtype(np.object_),
    }
)
"""Datatype name -> the NumPy dtype that carries it, little-endian."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One declared input or output of a model.

    Attributes:
        name: the ONNX graph's own name.
        datatype: protocol name, a key of `DATATYPES`.
        shape: declared axes; -1 where the size varies from request to request.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]

    @property
    def shape_text(self) -> str:
        """The declared shape, as messages show it."""
        return f"{list(self.shape)}{' (-1 = any)' if -1 in self.shape else ''}"

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy dtype of the elements."""
        return DATATYPES[self.datatype]


def datatype_of(dtype: np.dtype[np.generic]) -> Datatype:
    """Protocol name of a NumPy dtype.

    Raises:
        ValueError: the protocol has no name for it.
    """
    for name, carrier in DATATYPES.items():
        if carrier == dtype and name != "BF16":
            return name
    raise ValueError(f"no Open Inference Protocol datatype for NumPy dtype {dtype}")
