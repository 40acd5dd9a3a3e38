"""Files that `anabranch publish-delta` reads rows, keys and weights from."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from anabranch_publish import DeltaDraft
from anabranch_publish.tensor_files import read
from anabranch_wire.errors import InvalidInput, NotFound

__all__ = ["fill", "named"]

_ROWS: Final = frozenset({"keys", "values", "deleted"})

Arrays = Mapping[str, tuple[NDArray[np.generic], Literal["bf16"] | None]]


def named(told: Sequence[str], option: str) -> dict[str, Path]:
    """Return the files of options that have the form NAME=FILE.

    Raises:
        InvalidInput: one has another form, or a name is there twice.
    """
    found: dict[str, Path] = {}
    for each in told:
        name, _, file = each.partition("=")
        if not name or not file:
            raise InvalidInput(f"{option} {each}: expected NAME=FILE")
        if name in found:
            raise InvalidInput(f"{option} {name}: is there twice")
        found[name] = Path(file)
    return found


def fill(
    draft: DeltaDraft,
    tables: Mapping[str, Path],
    deletes: Mapping[str, Path],
    dense: Sequence[Path],
    *,
    complete: bool,
) -> None:
    """Tell a delta what lies in files.

    Args:
        draft: of the delta.
        tables: table -> .safetensors or .npz with `keys` and `values`, `deleted`, or all three.
        deletes: table -> .npy with keys.
        dense: .safetensors or .npz with weights by their names in the version's ONNX file.
        complete: whether those are all dense weights.

    Raises:
        NotFound: a file is not there.
        InvalidInput: a file is of another kind, or what it holds is refused.
    """
    for path in dense:
        draft.dense(_weights(path), complete=complete)
    for name, path in tables.items():
        arrays = _arrays(path)
        if not arrays or not arrays.keys() <= _ROWS or ("keys" in arrays) != ("values" in arrays):
            raise InvalidInput(
                f"{path}: expected keys and values, and deleted where keys are to go; found "
                f"{', '.join(arrays) or 'nothing'}"
            )
        if "deleted" in arrays:
            draft.delete(name, _integers(arrays["deleted"][0], path))
        if "values" in arrays:
            values, dtype = arrays["values"]
            both = np.intersect1d(arrays["keys"][0], arrays.get("deleted", ([], None))[0])
            if both.size:
                raise InvalidInput(f"{path}: key {both[0]} has a row, and is deleted too")
            draft.upsert(name, _integers(arrays["keys"][0], path), values, dtype=dtype)
    for name, path in deletes.items():
        draft.delete(name, _integers(_array(path), path))


def _weights(path: Path) -> dict[str, NDArray[np.generic]]:
    found = _arrays(path)
    if bf16 := [name for name, (_, dtype) in found.items() if dtype]:
        raise InvalidInput(f"{path}: {bf16[0]} is bf16; weights have the type of the ONNX file")
    return {name: array for name, (array, _) in found.items()}


def _arrays(path: Path) -> Arrays:
    if not path.is_file():
        raise NotFound(f"{path}: no such file")
    if path.suffix == ".safetensors":
        return {
            name: (tensor.array, "bf16" if tensor.dtype == "BF16" else None)
            for name, tensor in read(path, str(path)).items()
        }
    if path.suffix == ".npz":
        try:
            with np.load(path) as arrays:
                return {name: (arrays[name], None) for name in arrays.files}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidInput(f"{path}: not .npz: {error}") from None
    raise InvalidInput(f"{path}: expected .safetensors or .npz")


def _array(path: Path) -> NDArray[np.generic]:
    if not path.is_file():
        raise NotFound(f"{path}: no such file")
    try:
        with path.open("rb") as file:
            found: NDArray[np.generic] = np.lib.format.read_array(file)
            return found
    except (ValueError, OSError, EOFError) as error:
        raise InvalidInput(f"{path}: not .npy: {error}") from None


def _integers(array: NDArray[np.generic], path: Path) -> NDArray[np.integer]:
    if array.dtype.kind not in "iu":
        raise InvalidInput(f"{path}: keys: expected integers, found {array.dtype}")
    return cast("NDArray[np.integer]", array.astype(array.dtype.newbyteorder("=")))
