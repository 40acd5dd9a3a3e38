"""The files that make up one version, verified; nothing else in the folder belongs to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from anabranch_model_store.containment import resolve_file
from anabranch_model_store.hashing import file_sha256, folder_identity
from anabranch_model_store.manifests import read_manifest, verify_files
from anabranch_model_store.settling import FolderListing, list_files
from anabranch_wire.errors import Conflict, InvalidInput, NotFound, Unavailable
from anabranch_wire.manifest import FILE_NAME, Manifest
from anabranch_wire.snapshots import Snapshot

__all__ = ["VersionFiles", "list_version", "verify_version"]


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """A version's files as they were verified.

    Attributes:
        folder: real path of the version folder.
        manifest: None where the version was taken because it was still.
        identity: what deltas name their base by.
        bytes: size by path relative to the folder, in the order of paths.
        digests: SHA-256 by path; a segment that its manifest lists without one has none here.
        unlisted: paths of files that lie in the folder, but are not in the manifest.
    """

    folder: Path
    manifest: Manifest | None
    identity: str
    bytes: Mapping[str, int]
    digests: Mapping[str, str]
    unlisted: tuple[str, ...] = ()

    def __contains__(self, relative: str) -> bool:
        return relative in self.bytes

    def path(self, relative: str) -> Path:
        """Return the real path of one of the files.

        Raises:
            NotFound: it is no file of the version.
            InvalidInput: it has become a link that leads out of the folder.
        """
        if relative not in self.bytes:
            hint = f"; it is not listed in {FILE_NAME}" if relative in self.unlisted else ""
            raise NotFound(f"{relative}: no such file in the version{hint}")
        return resolve_file(self.folder, relative)

    def below(self, folder: str, *suffixes: str) -> tuple[str, ...]:
        """Return the paths of files in `folder` (not deeper) that end in one of `suffixes`."""
        return tuple(
            path
            for path in self.bytes
            if path.rpartition("/")[0] == folder and path.endswith(suffixes)
        )


def verify_version(folder: Path, snapshot: Snapshot) -> VersionFiles:
    """Read every byte of a version once and return what it consists of.

    Args:
        folder: of the version.
        snapshot: model and version that the folder stands for.

    Raises:
        Corrupt: a file is missing or differs from the manifest.
        InvalidInput: the manifest is malformed, or a name or link leads out of the folder.
        Unsupported: the manifest is newer than this release reads.
        Conflict: without a manifest: files changed while they were read.
        TooLarge, Unavailable: the folder cannot be read.
    """
    listing = list_files(folder)
    found = read_manifest(folder, snapshot)
    if found is None:
        return _without_manifest(folder, listing)
    manifest, identity = found
    verify_files(folder, manifest)
    sizes = {listed.path: listed.bytes for listed in sorted(manifest.files, key=lambda f: f.path)}
    unlisted = tuple(
        file.path for file in listing.files if file.path not in sizes and file.path != FILE_NAME
    )
    if "model.yaml" in unlisted:
        raise InvalidInput(
            f"model.yaml lies in the version, but {FILE_NAME} does not list it; what a version "
            "means cannot be added later: publish it as a new version"
        )
    digests = {listed.path: listed.sha256 for listed in manifest.files if listed.sha256}
    return VersionFiles(
        folder.resolve(),
        manifest,
        identity,
        MappingProxyType(sizes),
        MappingProxyType(digests),
        unlisted,
    )


def list_version(folder: Path, snapshot: Snapshot) -> VersionFiles:
    """Return what a version consists of by names and sizes; no byte but the manifest's is read.

    For looking at a version, not for serving it. Without a manifest the identity is "".

    Raises:
        InvalidInput, Unsupported, TooLarge, Unavailable: as `verify_version`.
    """
    listing = list_files(folder)
    found = read_manifest(folder, snapshot)
    sizes = MappingProxyType({file.path: file.bytes for file in listing.files})
    if found is None:
        return VersionFiles(folder.resolve(), None, "", sizes, MappingProxyType({}))
    manifest, identity = found
    named = MappingProxyType({file.path: file.bytes for file in manifest.files})
    return VersionFiles(folder.resolve(), manifest, identity, named, MappingProxyType({}))


def _without_manifest(folder: Path, listing: FolderListing) -> VersionFiles:
    digests: dict[str, str] = {}
    for file in listing.files:
        try:
            digests[file.path] = file_sha256(resolve_file(folder, file.path))
        except OSError as error:
            raise Unavailable(f"{file.path}: cannot be read: {error.strerror}") from None
    if list_files(folder) != listing:
        raise Conflict("the files of the version changed while they were read")
    sizes = {file.path: file.bytes for file in listing.files}
    return VersionFiles(
        folder.resolve(),
        None,
        folder_identity(digests),
        MappingProxyType(sizes),
        MappingProxyType(digests),
    )
