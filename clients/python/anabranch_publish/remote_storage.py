"""A model's folder in an object store, or wherever else fsspec leads.

Documents are created with `mode="create"`, which object stores do at once or not at all. A file
system that ignores that would let one of two racing publishers replace the other's document; so it
is tried once, before the first one.
"""

import errno
import importlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol, cast

from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.names import ModelName, check_model_name

__all__ = ["open_remote"]

_WAITS_S: Final = (0.1, 0.3, 1.0, None)
_TIMES: Final = ("LastModified", "mtime", "last_modified", "updated", "created")


class _FileSystem(Protocol):
    """What is asked of an fsspec file system."""

    def invalidate_cache(self, path: str | None = None) -> None: ...
    def ls(self, path: str, detail: bool) -> list[str]: ...
    def cat_file(self, path: str) -> bytes: ...
    def pipe_file(self, path: str, value: bytes, mode: str) -> None: ...
    def put_file(self, lpath: str, rpath: str) -> None: ...
    def get_file(self, rpath: str, lpath: str) -> None: ...
    def makedirs(self, path: str, exist_ok: bool) -> None: ...
    def find(self, path: str, detail: bool) -> dict[str, dict[str, object]]: ...
    def rm(self, path: str, recursive: bool) -> None: ...


def open_remote(url: str, options: Mapping[str, object]) -> "_RemoteStorage":
    """Return the folder of a URL.

    Raises:
        InvalidInput: nobody knows such a URL, or the folder's name is that of no model.
        Unsupported: the packages for such a URL are not installed.
    """
    try:
        core = importlib.import_module("fsspec.core")
        system, root = core.url_to_fs(url.rstrip("/"), **options)
    except ImportError as error:
        raise Unsupported(
            f"{url}: {error}; install anabranch-client[fsspec], and the package of the file system "
            "(s3fs for s3://, gcsfs for gs://)"
        ) from None
    except ValueError as error:
        raise InvalidInput(f"{url}: {error}") from None
    return _RemoteStorage(url.rstrip("/"), cast(_FileSystem, system), root)


class _RemoteStorage:
    """See `Storage`."""

    def __init__(self, url: str, system: _FileSystem, root: str) -> None:
        self._url = url
        self._system = system
        self._root = root.rstrip("/")
        self._model = check_model_name(self._root.rpartition("/")[2])
        self._creates = False

    @property
    def url(self) -> str:
        """See `Storage`."""
        return self._url

    @property
    def model(self) -> ModelName:
        """See `Storage`."""
        return self._model

    def names(self, path: str) -> frozenset[str]:
        """See `Storage`."""
        folder = self._at(path)
        self._system.invalidate_cache()
        try:
            listed = self._system.ls(folder, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        plain = folder.lstrip("/")
        found = (entry.strip("/") for entry in listed)
        return frozenset(entry.rpartition("/")[2] for entry in found if entry != plain)

    def read(self, path: str) -> bytes | None:
        """See `Storage`."""
        try:
            return self._system.cat_file(self._at(path))
        except (FileNotFoundError, IsADirectoryError):
            return None

    def create(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        self._check_creates(path.rpartition("/")[0])
        self._create(self._at(path), data)

    def put(self, source: Path, path: str) -> None:
        """See `Storage`."""
        target = self._at(path)
        self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._system.put_file(str(source), target)

    def settle(self, path: str) -> None:
        """See `Storage`: an object that is there stays."""

    def begin(self, path: str) -> "_RemoteUpload":
        """See `Storage`."""
        return _RemoteUpload(self, path)

    @contextmanager
    def fetch(self, path: str) -> Iterator[Path]:
        """See `Storage`."""
        with tempfile.TemporaryDirectory(prefix="anabranch-") as name:
            folder, whole = Path(name), self._at(path)
            for found in self._files(path):
                target = folder / found.lstrip("/")[len(whole.lstrip("/")) + 1 :]
                target.parent.mkdir(parents=True, exist_ok=True)
                self._system.get_file(found, str(target))
            yield folder

    def remove(self, path: str) -> None:
        """See `Storage`."""
        try:
            self._system.rm(self._at(path), recursive=True)
        except FileNotFoundError:
            return

    def last_change(self, path: str) -> float | None:
        """See `Storage`."""
        times = [_time(about) for about in self._files(path).values()]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _files(self, path: str) -> dict[str, dict[str, object]]:
        self._system.invalidate_cache()
        try:
            return self._system.find(self._at(path), detail=True)
        except FileNotFoundError:
            return {}

    def _create(self, target: str, data: bytes) -> None:
        """Make an object, or say `FileExistsError` if there is one, as not every package does."""
        for wait_s in _WAITS_S:
            try:
                self._system.pipe_file(target, data, mode="create")
                return
            except FileExistsError:
                raise
            except OSError as error:
                if self._is_there(target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
                if error.errno != errno.EBUSY or wait_s is None:  # two at once: one is asked again
                    raise
                time.sleep(wait_s)

    def _is_there(self, target: str) -> bool:
        try:
            self._system.cat_file(target)
        except FileNotFoundError:
            return False
        return True

    def _check_creates(self, folder: str) -> None:
        """Try once whether a file that is there is left alone; `Unsupported` if it is not."""
        if self._creates:
            return
        probe = self._at(f"{folder}/.probe-{secrets.token_hex(8)}")
        try:
            self._create(probe, b"first")
            try:
                self._create(probe, b"second")
            except FileExistsError:
                self._creates = self._system.cat_file(probe) == b"first"
        # What file systems say that know no such mode: each in a way of its own.
        except (NotImplementedError, TypeError, ValueError) as error:
            raise Unsupported(f"{self._refusal()} ({error})") from None
        finally:
            self.remove(f"{folder}/{probe.rpartition('/')[2]}")
        if not self._creates:
            raise Unsupported(self._refusal())

    def _refusal(self) -> str:
        return (
            f"{self._url}: this file system replaces a file although it was told to make a new "
            "one, so that racing publishers would replace each other's documents: use a store "
            "with conditional writes (If-None-Match) and a current package for it, or a mounted "
            "folder"
        )


class _RemoteUpload:
    """See `Upload`."""

    def __init__(self, storage: _RemoteStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._sent = False
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-"))

    @property
    def folder(self) -> Path:
        """See `Upload`."""
        return self._folder

    def send(self) -> None:
        """See `Upload`."""
        self._sent = True
        for source in sorted(self._folder.rglob("*")):
            if not source.is_file():
                continue
            relative = source.relative_to(self._folder).as_posix()
            self._storage.put(source, f"{self._path}/{relative}")

    def move(self, path: str) -> None:
        """See `Upload`."""
        self._take_away()
        self._path = path

    def close(self, *, keep: bool) -> None:
        """See `Upload`."""
        try:
            if not keep:
                self._take_away()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _take_away(self) -> None:
        if self._sent:
            self._storage.remove(self._path)
            self._sent = False


def _time(about: Mapping[str, object]) -> float | None:
    for name in _TIMES:
        found = about.get(name)
        if isinstance(found, datetime):
            return found.timestamp()
        if isinstance(found, int | float):
            return float(found)
        if isinstance(found, str):
            try:
                return datetime.fromisoformat(found).timestamp()
            except ValueError:
                continue
    return None
