"""The local skeleton of a remote repository: its documents, without the files that they name.

It lies in the cache folder and is scanned like any repository. Everything appears in it in one step
and whole: a model with its settings, a version with all its deltas so far, later each delta. What a
process that died was making has a hidden name and is removed by the next one. A skeleton that lacks
what others may have seen in it is hidden as a whole until it is filled: while there is none, what
is served stays.
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
        root: its folder; made, mode 0700, when it is shown.

    Raises:
        Unavailable: the folder around it cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._hidden = root.with_name(f"{_MAKING}{root.name}")
        self._place = root
        self._lock = -1
        with _writing():
            root.parent.mkdir(parents=True, exist_ok=True)

    @property
    def is_shown(self) -> bool:
        """Whether it is there, where others look for it."""
        return self._place == self.root and self.root.is_dir()

    def begin(self) -> bool:
        """Become the one that writes it, until `close` or the end of the process.

        Where there is none, or one is being made, it is hidden.

        Returns:
            Whether that is so; if not, another process does.

        Raises:
            Unavailable: the folder cannot be opened.
        """
        if self._lock >= 0:
            return True
        with _writing():
            place = self.root
            if not place.is_dir():
                place = self._hidden
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _locked(place)
            if lock < 0:
                return False
            if place != self.root and self.root.is_dir():  # another has just shown its own
                os.close(lock)
                return False
            self._lock, self._place = lock, place
            if place == self.root:
                _remove(self._hidden)
            for folder in (place, *(one for one in place.iterdir() if one.is_dir())):
                for left in folder.glob(f"{_MAKING}*"):
                    _remove(left)
        return True

    def close(self) -> None:
        """Leave it to others."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._place = self.root

    def hide(self) -> None:
        """Take it away from those who look at it, until `show`; its writer calls it."""
        if self._place == self.root:
            with _writing():
                _remove(self._hidden)
                self.root.rename(self._hidden)
            self._place = self._hidden

    def show(self) -> None:
        """Let it be there, if it is hidden: all that is in it in one step.

        Raises:
            Unavailable: something else lies there now; it is left to others.
        """
        if self._place != self.root:
            try:
                with _writing():
                    self._place.rename(self.root)
            except Unavailable:
                self.close()
                raise
            self._place = self.root

    def is_there(self) -> bool:
        """Whether the folder that this writes is still the one at its path."""
        return self._lock >= 0 and _is_at(self._lock, self._place)

    def has(self, model: str, version: int | None = None) -> bool:
        """Whether a model or a version of it is there."""
        if version is None:
            return (self._place / model).is_dir()
        return (self._place / model / str(version) / manifest.FILE_NAME).is_file()

    def deltas(self, model: str, version: int) -> set[int]:
        """Return the numbers of the deltas of a version."""
        with _writing():
            return _deltas(self._place / model / str(version))

    def models(self) -> dict[str, dict[int, set[int]]]:
        """Return what is there: model -> version -> numbers of its deltas."""
        if not self._place.is_dir():
            return {}
        with _writing():
            return {
                model.name: {
                    int(version.name): _deltas(version)
                    for version in model.iterdir()
                    if is_version(version.name) and (version / manifest.FILE_NAME).is_file()
                }
                for model in self._place.iterdir()
                if model.is_dir() and not model.name.startswith(".")
            }

    def read(self, path: str) -> bytes | None:
        """Return a file of it; None where there is none."""
        try:
            return (self._place / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable(f"cache folder: {path}: {error.strerror}") from None

    def put_model(self, model: str, files: Mapping[str, bytes]) -> bool:
        """Make the files beside the versions of a model these; returns whether any was another."""
        changed = False
        with _writing():
            folder = self._place / model
            if not folder.is_dir():
                making = Path(tempfile.mkdtemp(prefix=_MAKING, dir=self._place))
                for name, data in files.items():
                    (making / name).write_bytes(data)
                making.rename(folder)
                return True
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
            target = self._place / model / str(version)
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
            _write_delta(self._place / model / str(version), number, data)

    def remove(self, model: str, version: int | None = None, number: int | None = None) -> None:
        """Remove a model, a version of it, or a delta of that."""
        with _writing():
            place = self._place / model
            if version is not None:
                place /= str(version)
            if number is not None:
                place = place / _DELTAS / f"{number:0{_DIGITS}}"
            _remove(place)


def _locked(place: Path) -> int:
    """Lock a folder; -1 where another process has, or has just moved it."""
    try:
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_locked = _is_at(lock, place)
    except BlockingIOError:
        is_locked = False
    if not is_locked:
        os.close(lock)
    return lock if is_locked else -1


def _is_at(lock: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except OSError:
        return False


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
