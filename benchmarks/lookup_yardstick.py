"""The limit of lookups, and lookups without versions: native code that is not part of the product.

The code is `runtime/native/bench/random_reads`; it is built on first use (about a minute) under
`build/random_reads` with the tools of `.venv`, and called through ctypes, so that limits, our
lookups and peers alternate within one process.
"""

import ctypes
import functools
import subprocess
from pathlib import Path
from typing import Final, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = ["DISTANCES", "Build", "OpenStore", "is_built"]

Build = Literal["versioned", "unversioned"]
"""Which of the two libraries: the product's lookup code, or the same without versions."""

DISTANCES: Final = (8, 16, 24, 32, 48)
"""Prefetch distances, in records, that the limit is the best of."""

_ROOT: Final = Path(__file__).parents[1]
_SOURCE: Final = _ROOT / "runtime" / "native" / "bench" / "random_reads"
_BUILT: Final = _ROOT / "build" / "random_reads"
_TOOLS: Final = _ROOT / ".venv" / "bin"
_MESSAGE_BYTES: Final = 256


class OpenStore:
    """A generation over its segment, mapped by one of the libraries; a context manager.

    Thread-safety: any thread; every call releases the interpreter's lock.
    """

    def __init__(self, segment: Path, generation_fd: int, build: Build = "versioned") -> None:
        """Map both, populated.

        Raises:
            RuntimeError: they do not belong together, or the library cannot be built.
        """
        self._library = _library(build)
        self._message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        with segment.open("rb") as file:
            self._store = self._library.store_open(file.fileno(), generation_fd, self._message)
        if self._store is None:
            raise RuntimeError(self._message.value.decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.store_close(self._store)
        self._store = None

    def home_groups(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the index group that each of `keys` (n,) begins at in table 0."""
        groups = np.empty_like(keys)
        self._library.home_groups(self._store, keys.ctypes.data, len(keys), groups.ctypes.data)
        return groups

    def gather_rows(self, rows: NDArray[np.uint64], distance: int) -> None:
        """Read base rows (n,) of table 0 by number, and nothing else: the limit."""
        self._library.gather_rows(self._store, rows.ctypes.data, len(rows), distance)

    def gather_groups(self, groups: NDArray[np.uint64], distance: int) -> None:
        """Read index groups (n,) of table 0, and nothing else."""
        self._library.gather_groups(self._store, groups.ctypes.data, len(groups), distance)

    def look_up(self, batches: NDArray[np.uint64], version: int, out: NDArray[np.float32]) -> int:
        """Look up `batches` (batches, rows) of keys in table 0, one after another, into `out`.

        Returns:
            How many keys were missing.

        Raises:
            RuntimeError: a lookup was refused.
        """
        missing: int = self._library.look_up(
            self._store, batches.ctypes.data, *batches.shape, version, out.ctypes.data,
            self._message,
        )  # fmt: skip
        if missing < 0:
            raise RuntimeError(self._message.value.decode())
        return missing


def is_built() -> bool:
    """Whether both libraries are there, of this state of the code or an older one."""
    return all((_BUILT / f"lib{build}.so").exists() for build in get_args(Build))


@functools.cache
def _library(build: Build) -> ctypes.CDLL:
    """The library, with the types of its functions; built where it is stale."""
    _make()
    library = ctypes.CDLL(str(_BUILT / f"lib{build}.so"))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.store_open.restype = pointer
    library.store_open.argtypes = [ctypes.c_int, ctypes.c_int, pointer]
    library.store_close.argtypes = [pointer]
    library.home_groups.argtypes = [pointer, pointer, size, pointer]
    for gather in (library.gather_rows, library.gather_groups):
        gather.restype = ctypes.c_uint64
        gather.argtypes = [pointer, pointer, size, size]
    library.look_up.restype = ctypes.c_int64
    library.look_up.argtypes = [pointer, pointer, size, size, ctypes.c_uint32, pointer, pointer]
    return library


@functools.cache
def _make() -> None:
    """Bring both libraries up to date; a build with nothing to do takes a fraction of a second."""
    ninja = _TOOLS / "ninja"
    cmake = str(_TOOLS / "cmake")
    for command in (
        [
            cmake, "-S", str(_SOURCE), "-B", str(_BUILT), "-G", "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={ninja}", "-DCMAKE_BUILD_TYPE=Release",
        ],
        [cmake, "--build", str(_BUILT), "--target", "versioned", "unversioned"],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the yardstick does not build:\n{done.stdout}{done.stderr}")
