"""delta.json: one incremental update of a version. Written last, it publishes its attempt."""

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from anabranch_wire.document_fields import (
    Count,
    DeltaNumber,
    Digest,
    Dim,
    KeyType,
    ListedFile,
    Producer,
    Seconds,
    VersionNumber,
    check_finite,
    check_listed,
    check_unique,
)
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_model_name, check_relative_path, check_tensor_name

__all__ = [
    "FILE_NAME",
    "Base",
    "Delta",
    "DenseTensors",
    "ItemTable",
    "TableRows",
    "decode",
    "encode",
]

FILE_NAME: Final = "delta.json"


class Base(Document, frozen=True, kw_only=True):
    """What a delta changes.

    Attributes:
        identity: of the version (`anabranch_wire.manifest.identity`, or that of a folder without a
            manifest).
        previous: the delta it follows; 0 for the version as published.
    """

    identity: Digest
    previous: Annotated[int, Meta(ge=0, le=99_999_999)]


class TableRows(Document, frozen=True, kw_only=True):
    """Changed and deleted rows of one table.

    Attributes:
        name: of the table, or an alias.
        file: safetensors with `keys` [upserts] and `values` [upserts, dim], and `deleted` [deletes]
            where there are any.
        dim: numbers per row.
        dtype: of `values`.
        key_dtype: of `keys` and `deleted`.
        upserts: rows to insert or replace.
        deletes: rows to take out.
    """

    name: str
    file: str
    dim: Dim
    dtype: Literal["f32", "f16", "bf16"]
    key_dtype: KeyType
    upserts: Count
    deletes: Count

    def __post_init__(self) -> None:
        check_tensor_name(self.name)


class DenseTensors(Document, frozen=True, kw_only=True):
    """Changed dense weights.

    Attributes:
        file: safetensors, names as in the version's ONNX file.
        tensors: the names it holds.
        complete: whether these are all dense weights of the model.
    """

    file: str
    tensors: Annotated[tuple[str, ...], Meta(min_length=1)]
    complete: bool

    def __post_init__(self) -> None:
        for name in self.tensors:
            check_tensor_name(name)
        check_unique(self.tensors, "tensor")


class ItemTable(Document, frozen=True, kw_only=True):
    """An item table replaced whole.

    Attributes:
        name: as model.yaml declares it.
        file: what takes the place of the version's file.
    """

    name: str
    file: str

    def __post_init__(self) -> None:
        check_tensor_name(self.name)


class Delta(Document, frozen=True, kw_only=True):
    """One published delta.

    Attributes:
        model: name of the model.
        version: the version it belongs to.
        sequence: its number within the version.
        replaces_from: it holds everything of deltas replaces_from..sequence.
        base: what it must be applied to.
        attempt: 16 hex digits; name of the folder with its files.
        producer: program and release that wrote it.
        created: when.
        step: training step it was taken at.
        event_time: time of the newest training event it has seen.
        tables: changed rows.
        dense: changed dense weights; None if there are none.
        item_tables: item tables to replace.
        golden: requests to check before the switch.
        files: every file of the attempt, paths relative to its folder.
        extra: whatever the producer wants to keep here.
    """

    format: Literal[1]
    kind: Literal["delta"]
    model: str
    version: VersionNumber
    sequence: DeltaNumber
    replaces_from: DeltaNumber
    base: Base
    attempt: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
    producer: Producer
    created: Seconds
    step: Count | None = None
    event_time: Seconds | None = None
    tables: tuple[TableRows, ...] = ()
    dense: DenseTensors | None = None
    item_tables: tuple[ItemTable, ...] = ()
    golden: tuple[str, ...] = ()
    files: tuple[ListedFile, ...]
    extra: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_model_name(self.model)
        check_finite(self.created, self.event_time)
        if self.replaces_from > self.sequence:
            raise InvalidInput(
                f"replaces_from {self.replaces_from} is beyond sequence {self.sequence}"
            )
        if self.base.previous not in (0, self.sequence - 1):
            raise InvalidInput(
                f"base.previous {self.base.previous}: expected {self.sequence - 1} "
                f"before sequence {self.sequence}, or 0"
            )
        check_unique((table.name for table in self.tables), "table")
        check_unique((table.name for table in self.item_tables), "item table")
        check_unique(self.golden, "golden request")
        for path in self.golden:
            check_relative_path(path)
        check_listed(self.files, (table.file for table in self.tables))
        check_listed(self.files, (table.file for table in self.item_tables))
        if self.dense is not None:
            check_listed(self.files, (self.dense.file,))


def decode(data: bytes) -> Delta:
    """Read a delta.

    Raises:
        Unsupported: its format is newer than 1.
        InvalidInput: it is malformed; the message names the place.
    """
    return decode_json(data, Delta, FILE_NAME)


def encode(delta: Delta) -> bytes:
    """Write a delta.

    Raises:
        InvalidInput: it holds what `decode` would refuse.
    """
    return encode_json(delta, FILE_NAME)
