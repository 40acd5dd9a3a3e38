"""Parquet files of the log: written under a name that readers pass by, whole once they are named.

`DIR/<model>/<version>/<time>-w<worker>-<process>-<number>.parquet`, folders with mode 0700, files
with mode 0600. A file is begun with its first rows, and ends when it is large or old enough; what
a process left unfinished that died is taken away by a later one.
"""

import io
import os
import secrets
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch_server.folders import own_folder
from anabranch_wire.snapshots import Snapshot

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["LogFile", "Naming", "remove_leftovers"]

_GROUP_BYTES: Final = 16 << 20
_FILE_BYTES: Final = 128 << 20
_FILE_S: Final = 60.0
_LEFTOVER_S: Final = 900.0
_PART: Final = ".part"


class Naming:
    """Gives files names that no other process and no earlier one of this worker has.

    Args:
        folder: of the log.
        worker: index of this process among the workers.
    """

    def __init__(self, folder: Path, worker: int) -> None:
        self._folder = folder
        self._process = f"w{worker}-{secrets.token_hex(8)}"
        self._number = 0

    def next(self, snapshot: Snapshot, now: float) -> Path:
        """Return the name of the next file of a version, whose folder is made where missing.

        Raises:
            PermissionDenied, Unavailable: a folder is not the server's own, or cannot be made.
        """
        own_folder(self._folder)
        folder = own_folder(own_folder(self._folder / snapshot.model) / str(snapshot.version))
        self._number += 1
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        return folder / f"{moment}-{self._process}-{self._number:06}.parquet"


class LogFile:
    """One file from its first row to its name. Belongs to one thread.

    Args:
        path: the name that it gets when it is whole.
        schema: `pyarrow.Schema` of its rows.
        now: `time.monotonic()`.

    Attributes:
        schema: as given.
        requests: whose rows it has.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, path: Path, schema: Any, now: float) -> None:  # noqa: ANN401  # pyarrow has no types
        self._path = path
        self._part = path.with_name(f".{path.name}{_PART}")
        self.schema = schema
        self._ends = now + _FILE_S
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self.requests = 0
        fd = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._sink = _Sink(fd)
        try:
            parquet = import_module("pyarrow.parquet")
            self._writer = parquet.ParquetWriter(self._sink, schema, compression="zstd")
        except BaseException:
            self._remove()
            raise

    def add(self, batch: Any) -> None:  # noqa: ANN401  # pyarrow has no types
        """Take a `pyarrow.RecordBatch`; it is written with others.

        Raises:
            OSError: the file system refuses, as when it is full.
        """
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._write()

    def is_due(self, now: float) -> bool:
        """Whether it should end: it is large, or rows have waited long enough."""
        return now >= self._ends or self._sink.tell() + self._waiting_bytes >= _FILE_BYTES

    @property
    def due(self) -> float:
        """`time.monotonic()` at which it is old enough."""
        return self._ends

    def finish(self) -> None:
        """Write what waits, and give the file its name; it is on disk before readers see it.

        Raises:
            OSError: the file system refuses.
        """
        self._write()
        self._writer.close()
        self._sink.finish()
        self._part.rename(self._path)

    def discard(self) -> None:
        """Drop the file."""
        self._waiting.clear()
        self._sink.is_void = True
        with suppress(OSError):
            self._writer.close()  # else it tries once more when it is collected
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            self._part.unlink()

    def _write(self) -> None:
        if self._waiting:
            pa = import_module("pyarrow")
            self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
            self._waiting.clear()
            self._waiting_bytes = 0


class _Sink(io.RawIOBase):
    """A file to write to, until what comes is of no use any more.

    Args:
        fd: of the file; belongs to this object.

    Attributes:
        is_void: whether what is written is dropped.
    """

    def __init__(self, fd: int) -> None:
        self.is_void = False
        self._fd = fd
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: "ReadableBuffer", /) -> int:
        view = memoryview(data).cast("B")
        size = view.nbytes
        while view.nbytes and not self.is_void:
            view = view[os.write(self._fd, view) :]
        self._size += size
        return size

    def finish(self) -> None:
        """Bring everything to disk, and close."""
        os.fsync(self._fd)
        self.close()

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def remove_leftovers(folder: Path, now: float) -> int:
    """Take away what dead processes left unfinished, and return how many files that were.

    Args:
        folder: of the log.
        now: `time.time()`.
    """
    removed = 0
    for path in folder.glob(f"*/*/.*{_PART}"):
        with suppress(OSError):
            if now - path.stat().st_mtime > _LEFTOVER_S:
                path.unlink()
                removed += 1
    return removed
