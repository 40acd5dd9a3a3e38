"""The local skeleton of a remote repository: its documents, without the files that they name.

It lies in the cache folder and is scanned like any repository. Everything appears in it in one step
and whole: a version with all its deltas so far, later each delta. What a process that died was
making has a hidden name and is removed by the next one.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from anabranch_wire import delta, manifest
from anabranch_wire.errors import Unavailable
from anabranch_wire.names import is_version

__all__ = ["Skeleton"]

_DELTAS: Final = "deltas"
_MAKING: Final = ".making-"
_DIGITS: Final = 8


class Skeleton:
    """Writes one. Belongs to one thread at a time, and is written by one process at a time.

    Servers with the same cache folder and repository share it: one of them writes.

    Args:
        root: its folder; made, mode 0700.

    Raises:
        Unavailable: the folder cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = -1
        with _writing():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self) -> bool:
        """Become the one that writes it, until `close` or the end of the process.

        Returns:
            Whether that is so; if not, another process does.

        Raises:
            Unavailable: the folder cannot be opened.
        """
        if self._lock >= 0:
            return True
        with _writing():
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
            for folder in (self.root, *(one for one in self.root.iterdir() if one.is_dir())):
                for left in folder.glob(f"{_MAKING}*"):
                    _remove(left)
        return True

    def close(self) -> None:
        """Leave it to others."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def is_there(self) -> bool:
        """Whether the folder that this writes is still the one at its path."""
        try:
            return self._lock >= 0 and os.path.samestat(os.fstat(self._lock), self.root.stat())
        except OSError:
            return False

    def has(self, model: str, version: int) -> bool:
        """Whether a version is there."""
        return (self.root / model / str(version) / manifest.FILE_NAME).is_file()

    def models(self) -> dict[str, dict[int, set[int]]]:
        """Return what is there: model -> version -> numbers of its deltas."""
        with _writing():
            return {
                model.name: {
                    int(version.name): _deltas(version)
                    for version in model.iterdir()
                    if is_version(version.name) and (version / manifest.FILE_NAME).is_file()
                }
                for model in self.root.iterdir()
                if model.is_dir() and not model.name.startswith(".")
            }

    def read(self, path: str) -> bytes | None:
        """Return a file of it; None where there is none."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"cache folder: {path}: {error.strerror}") from None

    def put_model(self, model: str, files: Mapping[str, bytes]) -> bool:
        """Make the files beside the versions of a model these; returns whether any was another."""
        changed = False
        with _writing():
            folder = self.root / model
            if not folder.is_dir():
                folder.mkdir(mode=0o700)
                changed = True
            for found in folder.iterdir():
                if found.is_file() and found.name not in files and not found.name.startswith("."):
                    found.unlink()
                    changed = True
            for name, data in files.items():
                if self.read(f"{model}/{name}") != data:
                    beside = folder / f"{_MAKING}{name}"
                    beside.write_bytes(data)
                    beside.replace(folder / name)
                    changed = True
        return changed

    def put_version(
        self, model: str, version: int, document: bytes, deltas: Mapping[int, bytes]
    ) -> None:
        """Put a version there, in place of what there was.

        Args:
            model: its model, which is there.
            version: its number.
            document: its manifest.
            deltas: those that are published, by number.
        """
        with _writing():
            target = self.root / model / str(version)
            making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=target.parent))
            (making / _DELTAS).mkdir()
            (making / manifest.FILE_NAME).write_bytes(document)
            for number, data in deltas.items():
                _write_delta(making, number, data)
            if target.exists():
                _remove(target)
            making.rename(target)

    def put_delta(self, model: str, version: int, number: int, data: bytes) -> None:
        """Put a delta to its version, which is there."""
        with _writing():
            _write_delta(self.root / model / str(version), number, data)

    def remove(self, model: str, version: int | None = None, number: int | None = None) -> None:
        """Remove a model, a version of it, or a delta of that."""
        with _writing():
            place = self.root / model
            if version is not None:
                place /= str(version)
            if number is not None:
                place = place / _DELTAS / f"{number:0{_DIGITS}}"
            _remove(place)


def _deltas(version: Path) -> set[int]:
    """Numbers of deltas whose document is there; an empty one is what a crash may leave."""
    found: set[int] = set()
    with suppress(FileNotFoundError), os.scandir(version / _DELTAS) as entries:
        for entry in entries:
            with suppress(OSError, ValueError):
                number = int(entry.name)
                if os.stat(os.path.join(entry.path, delta.FILE_NAME)).st_size:
                    found.add(number)
    return found


def _write_delta(version: Path, number: int, data: bytes) -> None:
    deltas = version / _DELTAS
    target = deltas / f"{number:0{_DIGITS}}"
    making = deltas / f"{_MAKING}{target.name}"
    for left in (making, target):
        if left.exists():
            _remove(left)
    making.mkdir(parents=True)
    (making / delta.FILE_NAME).write_bytes(data)
    making.rename(target)


def _remove(place: Path) -> None:
    """Remove a folder, which is gone in one step for whoever looks."""
    if place.is_dir() and not place.is_symlink():
        hidden = place
        if not place.name.startswith("."):
            hidden = place.with_name(f"{_MAKING}{place.name}-gone")
            shutil.rmtree(hidden, ignore_errors=True)
            place.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"cache folder: {error.strerror or error}") from None
