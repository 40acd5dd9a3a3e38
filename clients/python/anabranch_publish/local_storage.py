"""A model's folder on a file system of this machine.

A document is created by `link`, which never replaces one; where the file system has no links, by
renaming without replacing; and where it has neither, by an exclusive `claim` beside the document.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from anabranch_wire.names import ModelName, check_model_name

__all__ = ["CLAIM", "LocalStorage", "sync_folder"]

CLAIM: Final = "claim"
"""File beside a document that only its maker may rename into place."""

_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_NOT_DONE_HERE: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EMLINK, errno.EXDEV}
)


class LocalStorage:
    """See `Storage`."""

    def __init__(self, root: Path) -> None:
        """Raises `InvalidInput` if the folder's name is that of no model."""
        self._root = root
        self._model = check_model_name(root.absolute().name)

    @property
    def url(self) -> str:
        """See `Storage`."""
        return str(self._root)

    @property
    def model(self) -> ModelName:
        """See `Storage`."""
        return self._model

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def names(self, path: str) -> frozenset[str]:
        """See `Storage`."""
        try:
            return frozenset(os.listdir(self._root / path))
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()

    def read(self, path: str) -> bytes | None:
        """See `Storage`."""
        try:
            return (self._root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def create(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        target = self._root / path
        temporary = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _give_name(temporary, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        self.settle(path)

    def put(self, source: Path, path: str) -> None:
        """See `Storage`."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())

    def settle(self, path: str) -> None:
        """See `Storage`."""
        for folder in (self._root / path).parents:
            sync_folder(folder)
            if folder == self._root:
                break

    def begin(self, path: str) -> "_LocalUpload":
        """See `Storage`."""
        return _LocalUpload(self, path)

    @contextmanager
    def fetch(self, path: str) -> Iterator[Path]:
        """See `Storage`."""
        yield self._root / path

    def remove(self, path: str) -> None:
        """See `Storage`."""
        target = self._root / path
        try:
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink()
        except FileNotFoundError:
            return
        sync_folder(target.parent)

    def last_change(self, path: str) -> float | None:
        """See `Storage`."""
        folder = self._root / path
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            newest = folder.stat().st_mtime
            for place in folder.rglob("*"):
                newest = max(newest, place.lstat().st_mtime)
            return newest
        except OSError:
            return None  # its publisher is at work
        finally:
            os.close(descriptor)


class _LocalUpload:
    """See `Upload`. Its folder is locked as long as its process lives."""

    def __init__(self, storage: LocalStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        if self.folder.exists():  # of a run of this very attempt that was killed
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        with suppress(OSError):  # locks are not everywhere; the age of files is
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def folder(self) -> Path:
        """See `Upload`."""
        return self._storage.root / self._path

    def send(self) -> None:
        """See `Upload`."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            sync_folder(Path(folder))
        self._storage.settle(self._path)

    def move(self, path: str) -> None:
        """See `Upload`."""
        target = self._storage.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        self.folder.rename(target)
        before, self._path = self.folder.parent, path
        with suppress(OSError):  # not if others are in it
            before.rmdir()

    def close(self, *, keep: bool) -> None:
        """See `Upload`."""
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):
                self.folder.parent.rmdir()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _give_name(temporary: Path, target: Path) -> None:
    """Give a file its name unless there is such a file; then, `FileExistsError`."""
    try:
        os.link(temporary, target)
        return
    except OSError as error:
        if error.errno not in _NOT_DONE_HERE:
            raise
    try:
        _rename_new(temporary, target)
        return
    except OSError as error:
        if error.errno not in _NOT_DONE_HERE:
            raise
    claim = target.with_name(CLAIM)
    os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        temporary.rename(target)
    except OSError:
        claim.unlink()
        raise


def _rename_new(source: Path, target: Path) -> None:
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, "this C library has no renameat2") from None
    if rename(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk.

    Raises:
        OSError: the file system refused.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
