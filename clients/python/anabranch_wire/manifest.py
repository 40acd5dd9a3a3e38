"""manifest.json: what one version consists of. It is written last, and publishes what it names."""

import hashlib
from typing import Final, Literal

from msgspec import field

from anabranch_wire.document_fields import (
    Count,
    Digest,
    Dim,
    KeyType,
    ListedFile,
    Producer,
    RowType,
    Seconds,
    VersionNumber,
    check_finite,
    check_listed,
    check_unique,
)
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_model_name, check_tensor_name

__all__ = ["FILE_NAME", "Manifest", "TableFile", "decode", "encode", "identity"]

FILE_NAME: Final = "manifest.json"


class TableFile(Document, frozen=True, kw_only=True):
    """An embedding table that lies outside the ONNX file.

    Attributes:
        name: by which lookups and deltas mean it.
        file: one of the manifest's files, in a format its suffix tells.
        rows: number of keys.
        dim: numbers per row.
        dtype: of the numbers.
        key_dtype: how the 64 bits of a key are written in the file.
    """

    name: str
    file: str
    rows: Count
    dim: Dim
    dtype: RowType
    key_dtype: KeyType

    def __post_init__(self) -> None:
        check_tensor_name(self.name)


class Manifest(Document, frozen=True, kw_only=True):
    """One published version.

    Attributes:
        model: name of the folder above the version's.
        version: name of the version's folder.
        producer: program and release that wrote it.
        created: when.
        step: training step it was taken at.
        event_time: time of the newest training event it has seen.
        model_file: the ONNX file as exported.
        structure_hash: of the graph without its weights; known only after optimisation.
        tables: tables beside the ONNX file.
        files: every file of the version but the manifest itself.
        extra: whatever the producer wants to keep here.
    """

    format: Literal[1]
    kind: Literal["version"]
    model: str
    version: VersionNumber
    producer: Producer
    created: Seconds
    step: Count | None = None
    event_time: Seconds | None = None
    model_file: str
    structure_hash: Digest | None = None
    tables: tuple[TableFile, ...] = ()
    files: tuple[ListedFile, ...]
    extra: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_model_name(self.model)
        check_finite(self.created, self.event_time)
        check_unique((table.name for table in self.tables), "table")
        if any(file.path == FILE_NAME for file in self.files):
            raise InvalidInput(f"{FILE_NAME} cannot list itself")
        check_listed(self.files, (self.model_file, *(table.file for table in self.tables)))


def decode(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        Unsupported: its format is newer than 1.
        InvalidInput: it is malformed; the message names the place.
    """
    return decode_json(data, Manifest, FILE_NAME)


def encode(manifest: Manifest) -> bytes:
    """Write a manifest.

    Raises:
        InvalidInput: it holds what `decode` would refuse.
    """
    return encode_json(manifest, FILE_NAME)


def identity(data: bytes) -> str:
    """Return what deltas name their base by: `sha256:` and the digest of the manifest's bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
