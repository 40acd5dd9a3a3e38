"""The deltas of one version as they lie in the repository."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from anabranch_publish.local_storage import LocalStorage
from anabranch_publish.storage import Storage
from anabranch_wire import delta, manifest, plan
from anabranch_wire.delta import Delta
from anabranch_wire.errors import Conflict, InvalidInput, NotFound, Unsupported

__all__ = ["PublishedDeltas"]

_DIGITS: Final = 8
_ATTEMPT: Final = re.compile(r"[0-9a-f]{16}")
_DELTAS: Final = "deltas"


class PublishedDeltas:
    """Reader of a version's `deltas/`. For one thread."""

    def __init__(self, storage: Storage, version: int) -> None:
        self._storage = storage
        self._version = version
        self._folder_identity: str | None = None

    @property
    def version(self) -> int:
        """Of which version."""
        return self._version

    @property
    def storage(self) -> Storage:
        """Where the model's folder lies."""
        return self._storage

    def base(self) -> tuple[str, dict[str, int]]:
        """Return what deltas name as their base, and numbers per row of the tables that it tells.

        Raises:
            NotFound: there is no such version, or not all of it.
            InvalidInput, Unsupported: its manifest is malformed, or newer than this release reads.
            OSError: the file system refused.
        """
        data = self._storage.read(f"{self._version}/{manifest.FILE_NAME}")
        if data is not None:
            found = manifest.decode(data)
            if (found.model, found.version) != (self._storage.model, self._version):
                raise InvalidInput(
                    f"{manifest.FILE_NAME}: is of {found.model} {found.version}, and lies in "
                    f"{self._storage.model} {self._version}: publish that version anew"
                )
            dims = {table.name: table.dim for table in found.tables}
            if any(file.path == plan.FILE_NAME for file in found.files) and (
                planned := self._storage.read(f"{self._version}/{plan.FILE_NAME}")
            ):
                dims |= {table.name: table.dim for table in plan.decode(planned).tables}
            return manifest.identity(data), dims
        if not self._storage.names(str(self._version)):
            raise NotFound(f"{self._storage.url}: there is no version {self._version}")
        if not isinstance(self._storage, LocalStorage):
            raise NotFound(
                f"{self._storage.url}: version {self._version} has no {manifest.FILE_NAME}: "
                "publish it with publish_version"
            )
        if self._folder_identity is None:
            self._folder_identity = _identity(self._storage.root / str(self._version))
        return self._folder_identity, {}

    def folder(self, sequence: int) -> str:
        """Return the path of a delta's folder."""
        return f"{self._version}/{_DELTAS}/{sequence:08}"

    def attempt_folder(self, sequence: int, attempt: str) -> str:
        """Return the path of the folder of an attempt's files."""
        return f"{self.folder(sequence)}/{attempt}"

    def document_path(self, sequence: int) -> str:
        """Return the path of a delta's document."""
        return f"{self.folder(sequence)}/{delta.FILE_NAME}"

    def numbers(self) -> list[int]:
        """Return the numbers that have a folder, the newest first; not all have a delta."""
        return sorted(map(int, self._number_names()), reverse=True)

    def _number_names(self) -> list[str]:
        names = self._storage.names(f"{self._version}/{_DELTAS}")
        return [
            name for name in names if len(name) == _DIGITS and name.isascii() and name.isdigit()
        ]

    def attempts(self, sequence: int) -> list[str]:
        """Return the attempts at a number that have a folder."""
        names = self._storage.names(self.folder(sequence))
        return sorted(name for name in names if _ATTEMPT.fullmatch(name))

    def document(self, sequence: int) -> Delta | None:
        """Return a published delta; None where there is none of that number.

        Raises:
            InvalidInput, Unsupported: it is malformed, or newer than this release reads.
            OSError: the file system refused.
        """
        data = self._storage.read(self.document_path(sequence))
        return None if data is None else delta.decode(data)

    def newest(self) -> int:
        """Return the number of the newest delta; 0 where there is none."""
        names = self._number_names()
        if not names:
            return 0
        # Usually the first one is it; names of one length sort as their numbers do.
        last = int(max(names))
        if self._storage.read(self.document_path(last)) is not None:
            return last
        for sequence in sorted(map(int, names), reverse=True):
            if self._storage.read(self.document_path(sequence)) is not None:
                return sequence
        return 0

    def newest_document(self) -> Delta | None:
        """Return the newest delta; None where there is none."""
        newest = self.newest()
        return self.document(newest) if newest else None

    def chain(self, first: int) -> list[Delta]:
        """Return the fewest deltas that hold all of `first` to the newest, the newest first.

        Raises:
            NotFound: one of them is not there.
            Conflict: one of them is of another base than the newest.
            InvalidInput, Unsupported, OSError: as `document`.
        """
        found = list(self._walk(first))
        for each in found:
            if each.base.identity != found[0].base.identity:
                raise Conflict(
                    f"delta {each.sequence} of version {self._version} is of base "
                    f"{each.base.identity}, delta {found[0].sequence} of "
                    f"{found[0].base.identity}: the version was replaced; publish a new one"
                )
        return found

    def _walk(self, first: int) -> Iterator[Delta]:
        sequence = self.newest()
        while sequence >= first and sequence:
            found = self.document(sequence)
            if found is None:
                raise NotFound(
                    f"delta {sequence} of version {self._version} is not there, and no later one "
                    "replaces it"
                )
            yield found
            sequence = found.replaces_from - 1

    def attempt(self, wanted: str, at_most: int) -> Delta | None:
        """Return the delta that an attempt became, looking at the newest ones only."""
        for sequence in self.numbers()[:at_most]:
            if wanted in self.attempts(sequence):
                try:
                    found = self.document(sequence)
                except (InvalidInput, Unsupported):
                    continue
                if found is not None and found.attempt == wanted:
                    return found
        return None


def _identity(folder: Path) -> str:
    """Return the identity of a version without a manifest; see docs/repository.md."""
    digests: dict[str, str] = {}
    for place in folder.rglob("*"):
        relative = place.relative_to(folder).as_posix()
        if place.is_file() and relative.split("/")[0] != _DELTAS:
            with place.open("rb") as file:
                digests[relative] = hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    for relative in sorted(digests, key=str.encode):
        whole.update(f"{relative}\0{digests[relative]}\n".encode())
    return f"sha256:{whole.hexdigest()}"
