"""Files with weights in the cache folder: all that deltas have changed in the graphs of a version.

A file is named after what it holds and checked against that when it is read. See docs/formats.md.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.cache_entries import sync
from anabranch_model_store.deltas.graph_tensors import WEIGHT_TYPES, raw_bytes
from anabranch_model_store.file_cache import FileCache
from anabranch_wire.errors import Corrupt, InvalidInput, NotFound, Unavailable
from anabranch_wire.tensor_files import (
    NUMPY_TYPES,
    Tensor,
    TensorPlace,
    file_parts,
    read_header,
)

__all__ = ["WeightFiles", "read_weights"]

Array = NDArray[np.generic]

_SUFFIX: Final = ".safetensors"
_FORMAT: Final = "anabranch weights 1"
_ELEMENTS: Final[Mapping[str, np.dtype[np.generic]]] = dict(
    zip(("F32", "F16", "BF16", "F64"), WEIGHT_TYPES.values(), strict=True)
)
_NAMES: Final = {dtype: name for name, dtype in _ELEMENTS.items()}


class WeightFiles(FileCache):
    """The folder of weights; see `FileCache`.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what `prune` keeps at most, beside what is in use.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        super().__init__(folder, limit_bytes, _SUFFIX, _verify)

    def keep(self, weights: Mapping[str, Array]) -> Path:
        """Return the file of weights, written where it is not there.

        Args:
            weights: by name; float32, float16, bfloat16 or float64.

        Raises:
            Unavailable: the cache folder cannot be written.
        """
        digest = _digest(weights)
        return self.get(digest, lambda folder, name: _write(weights, digest, folder / name))


def read_weights(path: Path) -> dict[str, Array]:
    """Return the weights of a file of the cache folder, as it was written.

    Raises:
        NotFound: there is no such file.
        Corrupt: it is not what was written.
        Unavailable: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            number = file.fileno()
            header = read_header(
                lambda begin, end: os.pread(number, end - begin, begin),
                os.fstat(number).st_size,
                path.name,
            )
        weights = {name: _array(path, place) for name, place in header.tensors.items()}
        digest = header.metadata["digest"]
    except FileNotFoundError:
        raise NotFound(f"{path.name}: no such file of weights") from None
    except OSError as error:
        raise Unavailable(f"{path.name}: cannot be read: {error.strerror}") from None
    except InvalidInput as error:
        raise Corrupt(error.message) from None
    except (ValueError, LookupError) as error:
        raise Corrupt(f"{path.name}: no file of weights: {error}") from None
    if _digest(weights) != digest:
        raise Corrupt(f"{path.name}: its weights are not those that were written")
    return weights


def _array(path: Path, place: TensorPlace) -> Array:
    """Return one tensor of a file, in memory of its own: whoever asked may change it.

    Raises:
        ValueError, LookupError: it is of no type that weights have, or not there any more.
        OSError: it cannot be read.
    """
    dtype = _ELEMENTS[place.dtype]
    flat = np.fromfile(path, np.uint8, place.end - place.begin, offset=place.begin)
    return flat.view(dtype).reshape(place.shape)


def _write(weights: Mapping[str, Array], digest: str, path: Path) -> None:
    """Write a file under another name, and give it its own once it is on the disk."""
    tensors = {name: _tensor(weights[name]) for name in sorted(weights)}
    temporary = path.with_name(f".weights-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # so that nobody clears it away meanwhile
            for part in file_parts(tensors, {"format": _FORMAT, "digest": digest}):
                file.write(part)
            file.flush()
            sync(temporary)
            temporary.rename(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _tensor(array: Array) -> Tensor:
    """Return an array as files hold it; the bits of bfloat16."""
    dtype = _NAMES[array.dtype]
    return Tensor(dtype, array.shape, (array.view(NUMPY_TYPES[dtype]),))


def _digest(weights: Mapping[str, Array]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        array = weights[name]
        digest.update(f"{name!r} {array.dtype} {array.shape}\n".encode(errors="surrogateescape"))
        digest.update(raw_bytes(array))
    return digest.hexdigest()


def _verify(place: Path, on_bytes: Callable[[int], None]) -> None:
    read_weights(place)
    on_bytes(place.stat().st_size)
