"""A version folder in the making: complete, on disk and checked before it gets its name.

Files are gathered in a hidden folder beside the versions, which no reader takes for one. Giving it
the version's name is a single rename, so readers see no version or all of it, manifest included,
even if the writer is killed. The name is claimed by `mkdir`: of racing writers, one succeeds.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from anabranch_publish.local_storage import sync_folder
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import Conflict, InvalidInput, NotFound
from anabranch_wire.names import check_relative_path

__all__ = ["Staging"]


class Staging:
    """Owner of one hidden folder; as a context manager it removes what was not published.

    For one thread. Each file is on disk (fsync) when the call that adds it returns.
    """

    def __init__(self, model_dir: Path) -> None:
        self._model_dir = model_dir
        self._folder = model_dir / f".publishing-{secrets.token_hex(8)}"
        self._files: list[ListedFile] = []

    def __enter__(self) -> Self:
        self._folder.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where the files lie until they are published."""
        return self._folder

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """What was added so far."""
        return tuple(self._files)

    def copy(self, source: Path, path: str) -> Path:
        """Add the bytes of `source` (links are followed) as `path`; return where they lie.

        Raises:
            NotFound: `source` is no file.
            InvalidInput: `path` is no relative path, or is taken.
        """
        if not source.is_file():
            raise NotFound(f"{source}: no such file")
        target = shutil.copyfile(source, self.reserve(path))
        self.adopt(path)
        return target

    def reserve(self, path: str) -> Path:
        """Return where to write the file `path`; its folder is there, itself it is not.

        Raises:
            InvalidInput: `path` is no relative path, or is taken.
        """
        target = self._folder / check_relative_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise InvalidInput(f"{path}: two files of this version have that name")
        return target

    def adopt(self, path: str) -> None:
        """Add the file that was written at `reserve(path)`."""
        with (self._folder / path).open("rb") as file:
            os.fchmod(file.fileno(), self._folder.stat().st_mode & 0o666)  # as the umask has it
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._files.append(ListedFile(path=path, bytes=file.tell(), sha256=digest))

    def publish(self, version: int, manifest_name: str, manifest: bytes) -> Path:
        """Give the folder its version's name; it is durable and visible when this returns.

        Raises:
            Conflict: there is such a version. The folder stays as it was: another may be tried.
            OSError: the file system refused.
        """
        try:
            return self.publish_as(str(version), manifest_name, manifest)
        except Conflict:
            raise Conflict(f"version {version} of {self._model_dir.name} is taken") from None

    def publish_as(self, name: str, manifest_name: str, manifest: bytes) -> Path:
        """Give the folder a name of any kind beside its own; else as `publish`.

        Raises:
            Conflict: there is such a file or folder.
            OSError: the file system refused.
        """
        target = self._model_dir / name
        with (self._folder / manifest_name).open("wb") as writer:
            writer.write(manifest)
            writer.flush()
            os.fsync(writer.fileno())
        for folder in self._folders():
            sync_folder(folder)
        try:
            target.mkdir()
        except FileExistsError:
            raise Conflict(f"{name} is taken") from None
        try:
            self._folder.rename(target)  # replaces the empty folder
        except OSError:
            with suppress(OSError):  # not if someone has put a file there
                target.rmdir()
            raise
        sync_folder(self._model_dir)
        sync_folder(self._model_dir.parent)  # where the model itself may be new
        return target

    def _folders(self) -> Iterator[Path]:
        """The folder and all below it, the deepest first."""
        for folder, _, _ in os.walk(self._folder, topdown=False):
            yield Path(folder)
