"""Rows and weights of a delta, from its files: checked by themselves, not yet against a version."""

from collections.abc import Mapping
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.delta_files import DeltaFiles
from anabranch_model_store.deltas.faults import DeltaConflict, DeltaCorrupt
from anabranch_model_store.deltas.targets import RowChanges
from anabranch_wire.delta import TableRows
from anabranch_wire.tensor_files import Tensor

__all__ = ["changed_rows", "changed_weights"]

_NUMBERS: Final = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
_KEYS: Final = {"int64": "I64", "uint64": "U64"}
_NAMES: Final = frozenset(("keys", "values", "deleted"))
_WEIGHTS: Final = frozenset(("F32", "F16", "BF16", "F64"))


def changed_rows(files: DeltaFiles, declared: TableRows) -> RowChanges:
    """Return the rows of one table.

    Args:
        files: of the delta.
        declared: the table, as the delta names it.

    Raises:
        DeltaCorrupt: the file is malformed, or has other rows than the delta says, or a key is
            both changed and deleted.
    """
    what = declared.file
    tensors = files.tensors(what)
    if "values" not in tensors or "keys" not in tensors or not _NAMES.issuperset(tensors):
        raise _wrong(what, "tensors keys, values, and deleted if need be", _shown(tensors))
    shape = (declared.upserts, declared.dim)
    values = _tensor(tensors["values"], what, "values", _NUMBERS[declared.dtype], shape)
    kind = _KEYS[declared.key_dtype]
    keys = _tensor(tensors["keys"], what, "keys", kind, shape[:1])
    deleted = np.empty(0, np.int64)
    if "deleted" in tensors or declared.deletes:
        if "deleted" not in tensors:
            raise _wrong(what, f"{declared.deletes} deleted keys", _shown(tensors))
        found = _tensor(tensors["deleted"], what, "deleted", kind, (declared.deletes,))
        deleted = _aligned(found).view(np.int64)
    changes = RowChanges(_aligned(keys).view(np.int64), _floats(values, declared.dtype), deleted)
    if len(deleted):
        both = np.intersect1d(changes.keys, deleted)
        if len(both):
            raise DeltaCorrupt(
                "invalid",
                f"table {declared.name!r}: key {both[0]} is both changed and deleted in one delta; "
                "expected one or the other",
            )
    return changes


def changed_weights(files: DeltaFiles) -> Mapping[str, NDArray[np.generic]]:
    """Return the dense weights of a delta, by name; none where it has none.

    Raises:
        DeltaCorrupt: the file is malformed, or has other tensors than the delta says.
        DeltaConflict: a tensor is of a type that weights never have.
    """
    dense = files.delta.dense
    if dense is None:
        return {}
    tensors = files.tensors(dense.file)
    if set(tensors) != set(dense.tensors):
        raise _wrong(dense.file, f"tensors {', '.join(dense.tensors)[:300]}", _shown(tensors))
    weights: dict[str, NDArray[np.generic]] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in _WEIGHTS:
            raise DeltaConflict("shape", f"weight {name!r} is of {tensor.dtype}; expected floats")
        weights[name] = _aligned(tensor.array)
        if tensor.dtype == "BF16":
            import ml_dtypes  # NumPy has no such type; seldom, and not there for the asking

            weights[name] = weights[name].view(ml_dtypes.bfloat16)
    return weights


def _tensor(
    tensor: Tensor, what: str, name: str, dtype: str, shape: tuple[int, ...]
) -> NDArray[np.generic]:
    found = (tensor.dtype, tensor.shape)
    if found != (dtype, shape):
        raise _wrong(what, f"{name} {dtype} {list(shape)}", f"{found[0]} {list(found[1])}")
    return tensor.array


def _floats(array: NDArray[np.generic], dtype: str) -> NDArray[np.float32]:
    """Return numbers as float32; those of bf16 are the upper halves of theirs."""
    if dtype == "bf16":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "f16":
        return array.astype(np.float32)
    return cast(NDArray[np.float32], _aligned(array))


def _aligned(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an array as machines like it: the format promises nothing of where it begins."""
    return array if array.flags.aligned else array.copy()


def _wrong(what: str, expected: str, found: str) -> DeltaCorrupt:
    return DeltaCorrupt("invalid", f"{what}: expected {expected}; found {found}")


def _shown(tensors: Mapping[str, Tensor]) -> str:
    shown = (f"{name} {one.dtype} {list(one.shape)}" for name, one in tensors.items())
    return ", ".join(shown)[:300] or "none"
