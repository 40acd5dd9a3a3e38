"""Reading manifest.json and proving that the files it names are there, byte for byte."""

from pathlib import Path
from typing import Final

from anabranch_model_store.containment import read_inside, resolve_file
from anabranch_model_store.hashing import file_sha256
from anabranch_wire.errors import Corrupt, InvalidInput, NotFound, Unavailable
from anabranch_wire.manifest import FILE_NAME, Manifest, decode, identity
from anabranch_wire.snapshots import Snapshot

__all__ = ["read_manifest", "verify_files"]

_MAX_BYTES: Final = 64 * 1024 * 1024


def read_manifest(folder: Path, snapshot: Snapshot) -> tuple[Manifest, str] | None:
    """Return the manifest of a version and its identity; None where the folder has none.

    Args:
        folder: of the version.
        snapshot: model and version that the folder stands for.

    Raises:
        Unsupported: its format is newer than this release reads.
        InvalidInput: it is malformed, or of another model or version than its folders say.
        TooLarge, Unavailable: it cannot be read.
    """
    try:
        data = read_inside(folder, FILE_NAME, _MAX_BYTES)
    except NotFound:
        return None
    manifest = decode(data)
    if (manifest.model, manifest.version) != (snapshot.model, snapshot.version):
        raise InvalidInput(
            f"{FILE_NAME} is of model {manifest.model!r}, version {manifest.version}, but lies in "
            f"{snapshot.model}/{snapshot.version}; publish the version again under its new name"
        )
    return manifest, identity(data)


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Check that every file of `manifest` is there with its size and digest.

    Sizes are checked first, so that a truncated copy is found before gigabytes are hashed.

    Raises:
        Corrupt: a file is missing or differs; the message names it, expected and found.
        InvalidInput: a name leads out of the folder.
        Unavailable: a file cannot be read.
    """
    paths: list[Path] = []
    for listed in manifest.files:
        try:
            path = resolve_file(folder, listed.path)
        except NotFound:
            raise Corrupt(
                f"{listed.path}: missing; {FILE_NAME} names it with {listed.bytes} bytes"
            ) from None
        found = path.stat().st_size
        if found != listed.bytes:
            raise Corrupt(f"{listed.path}: expected {listed.bytes} bytes, found {found}")
        paths.append(path)
    for listed, path in zip(manifest.files, paths, strict=True):
        if listed.sha256 is None:
            continue
        try:
            digest = file_sha256(path)
        except OSError as error:
            raise Unavailable(f"{listed.path}: cannot be read: {error.strerror}") from None
        if digest != listed.sha256:
            raise Corrupt(f"{listed.path}: expected sha256 {listed.sha256}, found {digest}")
