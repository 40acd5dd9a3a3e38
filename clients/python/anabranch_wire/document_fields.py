"""Fields that manifest.json, delta.json and plan.json have in common."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch_wire.documents import Document
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_relative_path

__all__ = [
    "LAST_DELTA",
    "Count",
    "DeltaNumber",
    "Digest",
    "Dim",
    "KeyType",
    "ListedFile",
    "Producer",
    "RowType",
    "Seconds",
    "Sha256",
    "VersionNumber",
    "check_finite",
    "check_listed",
    "check_unique",
]

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Dim = Annotated[int, Meta(ge=1, le=2**31 - 1)]
VersionNumber = Annotated[int, Meta(ge=1, le=10**18 - 1)]
LAST_DELTA: Final = 99_999_999
DeltaNumber = Annotated[int, Meta(ge=1, le=LAST_DELTA)]
Seconds = Annotated[float, Meta(ge=0)]  # since 1970
Producer = Annotated[str, Meta(min_length=1, max_length=256)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
RowType = Literal["f32", "f16", "bf16", "int8"]
KeyType = Literal["int64", "uint64"]


class ListedFile(Document, frozen=True, kw_only=True):
    """A file that a document publishes.

    Attributes:
        path: relative to the folder of the document (of the attempt, in a delta).
        bytes: its exact size.
        sha256: of its bytes, checked before use; None only for segments, which carry checksums of
            their own.
    """

    path: str
    bytes: Count
    sha256: Sha256 | None

    def __post_init__(self) -> None:
        check_relative_path(self.path)
        if self.sha256 is None and not self.path.endswith(".seg"):
            raise InvalidInput(f"{self.path}: only a segment (.seg) may have no sha256")


def check_finite(*seconds: float | None) -> None:
    """Check what JSON has no word for, and the encoder would turn into null.

    Raises:
        InvalidInput: a time is NaN or infinite.
    """
    for value in seconds:
        if value is not None and not math.isfinite(value):
            raise InvalidInput(f"created and event_time: expected finite numbers, got {value}")


def check_unique(names: Iterable[str], what: str) -> None:
    """Check that no name occurs twice.

    Raises:
        InvalidInput: one does; the message calls it a `what`.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"{what} {name!r} is there twice")
        seen.add(name)


def check_listed(files: Sequence[ListedFile], named: Iterable[str]) -> None:
    """Check the list of files and that it holds each path that the document names elsewhere.

    Raises:
        InvalidInput: a path is listed twice or is also the folder of another, or is not listed.
    """
    paths = {file.path for file in files}
    check_unique((file.path for file in files), "file")
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            if (folder := "/".join(parts[:depth])) in paths:
                raise InvalidInput(f"file {folder!r} is also the folder of {path!r}")
    for path in named:
        if check_relative_path(path) not in paths:
            raise InvalidInput(f"{path!r} is used, but not listed under files")
