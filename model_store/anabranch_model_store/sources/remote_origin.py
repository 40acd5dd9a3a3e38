"""The origin of a repository that is mirrored: files come from its URL when they are needed."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from anabranch_model_store.containment import read_inside
from anabranch_model_store.sources.fetched import Fetched
from anabranch_wire import manifest
from anabranch_wire.delta import Delta
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable

__all__ = ["RemoteOrigin"]

_MAX_MANIFEST: Final = 64 * 1024 * 1024
_NAME: Final = manifest.FILE_NAME


class RemoteOrigin:
    """See `Origin`. A folder as the repository shows it is one of the skeleton.

    Args:
        skeleton: root of the skeleton.
        fetched: keeps what is fetched.
    """

    def __init__(self, skeleton: Path, fetched: Fetched) -> None:
        self._skeleton = skeleton.resolve()
        self._fetched = fetched

    def version(self, folder: Path, on_bytes: Callable[[int, int], None]) -> Path:
        """See `Origin`."""
        data = self._manifest(folder)
        files = manifest.decode(data).files
        place = self._fetched.version(
            manifest.identity(data), self._remote(folder), files, on_bytes
        )
        try:
            if not (place / _NAME).is_file() or (place / _NAME).read_bytes() != data:
                (place / _NAME).write_bytes(data)
        except OSError as error:
            raise Unavailable(f"cache folder: {error.strerror or error}") from None
        return place

    def attempt(self, folder: Path, delta: Delta) -> Path:
        """See `Origin`."""
        name = f"{delta.sequence:08}-{delta.attempt}"
        remote = f"{self._remote(folder)}/deltas/{delta.sequence:08}/{delta.attempt}"
        identity = manifest.identity(self._manifest(folder))
        return self._fetched.attempt(identity, name, remote, delta.files)

    def prune(self, in_use: Collection[str], since: float | None = None) -> None:
        """Clear what was used longest ago; see `Fetched.prune`."""
        self._fetched.prune([Path(path) for path in in_use], since)

    def _manifest(self, folder: Path) -> bytes:
        try:
            return read_inside(folder, _NAME, _MAX_MANIFEST)
        except NotFound:
            raise Unavailable(f"{_NAME}: gone from the repository") from None

    def _remote(self, folder: Path) -> str:
        """Path of a version in the repository."""
        place = folder.resolve()
        if not place.is_relative_to(self._skeleton):
            raise InvalidInput(f"{folder}: expected a version of the repository")
        return place.relative_to(self._skeleton).as_posix()
