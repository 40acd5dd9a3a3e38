"""A version on its way into an object store, where a folder cannot get its name in one step.

Its number is claimed first, by a file that is created exclusively: two publishers of one number
would write over each other's files, and the manifest of one would name those of the other.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import structs

from anabranch_publish.storage import Storage
from anabranch_wire import manifest
from anabranch_wire.errors import Conflict
from anabranch_wire.manifest import Manifest
from anabranch_wire.names import is_version

__all__ = ["send_version"]

_CLAIM: Final = ".publishing"


def send_version(
    storage: Storage, folder: Path, document: Manifest, number: int | None
) -> tuple[str, Manifest]:
    """Send files and then their manifest; returns the version's URL and the manifest.

    Args:
        storage: the model's folder.
        folder: the files.
        document: what names them.
        number: of the version; None: the next one.

    Raises:
        Conflict: that version is there, or is being published.
        Unsupported: the file system cannot create a file exclusively.
        OSError: the file system refused; nothing is published.
    """
    while True:
        version = number or _next(storage)
        try:
            _claim(storage, version)
        except Conflict:
            if number is not None:
                raise
            continue
        document = structs.replace(document, version=version)
        _send(storage, folder, document)
        return f"{storage.url}/{version}", document


def _next(storage: Storage) -> int:
    return 1 + max((int(name) for name in storage.names("") if is_version(name)), default=0)


def _claim(storage: Storage, version: int) -> None:
    about = f"version {version} of {storage.model} is taken"
    manifest_path = f"{version}/{manifest.FILE_NAME}"
    if storage.read(manifest_path) is not None:
        raise Conflict(about)
    try:
        storage.create(f"{version}/{_CLAIM}", b"")
    except FileExistsError:
        raise Conflict(
            f"{about} by a publisher that has not finished: if none is at work, remove "
            f"{storage.url}/{version}"
        ) from None
    if storage.read(manifest_path) is not None:  # published since the first look
        storage.remove(f"{version}/{_CLAIM}")
        raise Conflict(about)


def _send(storage: Storage, folder: Path, document: Manifest) -> None:
    version = document.version
    data = manifest.encode(document)
    try:
        for file in document.files:
            storage.put(folder / file.path, f"{version}/{file.path}")
    except BaseException:
        with suppress(OSError):
            storage.remove(str(version))
        raise
    try:
        storage.create(f"{version}/{manifest.FILE_NAME}", data)
    except OSError:
        if storage.read(f"{version}/{manifest.FILE_NAME}") != data:  # its answer may be lost
            raise
    with suppress(OSError):  # the version is there; the claim is of no account any more
        storage.remove(f"{version}/{_CLAIM}")
