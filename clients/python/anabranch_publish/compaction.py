"""Many deltas as one: what a server that starts anew, or was away, applies in their place."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from anabranch_publish import tensor_files
from anabranch_publish.contents import Sources
from anabranch_publish.merging import RowChange, merge
from anabranch_publish.published_deltas import PublishedDeltas
from anabranch_publish.stored_numbers import Numbers
from anabranch_wire.delta import Delta, TableRows
from anabranch_wire.errors import Conflict, Corrupt, InvalidInput
from anabranch_wire.tensor_files import Tensor

__all__ = ["merged"]

_KEY_TYPES: Final = ("I64", "U64")


@contextmanager
def merged(deltas: PublishedDeltas, chain: Sequence[Delta]) -> Iterator[Sources]:
    """Return what deltas come to; to be written while the context is open.

    Rows are read from their files as they are written; what is held meanwhile is keys. Of each
    weight and item table the newest counts, and golden requests are those of the newest delta.

    Args:
        deltas: of a version.
        chain: some of them that follow each other, the newest first.

    Raises:
        Corrupt: a file is missing, or is not what its document says.
        Conflict: rows of one table have different numbers.
        OSError: the file system refused.
    """
    with ExitStack() as open_folders:
        rows: dict[str, list[RowChange]] = {}
        dims: dict[str, int] = {}
        dense: dict[str, Tensor] = {}
        items: dict[str, Path] = {}
        complete, golden = False, []
        for document in reversed(chain):
            place = deltas.attempt_folder(document.sequence, document.attempt)
            folder = open_folders.enter_context(deltas.storage.fetch(place))
            _check_files(folder, document)
            if document.dense is not None:
                weights = _dense(folder, document)
                for name in weights:  # the whole of it is new: earlier rows are no more
                    rows.pop(name, None)
                dense |= weights
                complete = complete or document.dense.complete
            for table in document.tables:
                if dims.setdefault(table.name, table.dim) != table.dim:
                    raise Conflict(
                        f"table {table.name!r}: delta {document.sequence} has rows of {table.dim} "
                        f"numbers, one before it of {dims[table.name]}"
                    )
                rows.setdefault(table.name, []).extend(_rows(folder, document, table))
            items |= {item.name: folder / item.file for item in document.item_tables}
            golden = [folder / path for path in document.golden]
        yield Sources(
            tables={name: merge(changes, dims[name]) for name, changes in rows.items()},
            dense=dense,
            complete=complete,
            item_tables=items,
            golden=golden,
        )


def _check_files(folder: Path, document: Delta) -> None:
    """Check sizes and digests: what was damaged must not get a good digest again."""
    for listed in document.files:
        what = f"delta {document.sequence}: {listed.path}"
        try:
            with (folder / listed.path).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except FileNotFoundError:
            raise Corrupt(f"{what}: is missing") from None
        if size != listed.bytes or (listed.sha256 and digest != listed.sha256):
            raise Corrupt(
                f"{what}: expected {listed.bytes} bytes with sha256 {listed.sha256}, found {size} "
                f"with {digest}"
            )


def _rows(folder: Path, document: Delta, table: TableRows) -> Iterator[RowChange]:
    what = f"delta {document.sequence}: {table.file}"
    tensors = _read(folder / table.file, what)
    for name, is_set in (("deleted", False), ("keys", True)):
        tensor = tensors.get(name)
        if tensor is None:
            continue
        if tensor.dtype not in _KEY_TYPES or len(tensor.shape) != 1:
            raise Corrupt(f"{what}: {name} is {tensor.dtype} {list(tensor.shape)}")
        keys = tensor.array.view("<i8")
        values = tensors.get("values") if is_set else None
        if is_set and (
            values is None
            or values.dtype.lower() != table.dtype
            or values.shape != (len(keys), table.dim)
        ):
            raise Corrupt(f"{what}: no values {table.dtype} [{len(keys)}, {table.dim}]")
        numbers = None if values is None else Numbers(values.dtype, values.array)
        yield RowChange(keys, table.key_dtype, numbers)


def _dense(folder: Path, document: Delta) -> dict[str, Tensor]:
    assert document.dense is not None
    what = f"delta {document.sequence}: {document.dense.file}"
    found = _read(folder / document.dense.file, what)
    if set(found) != set(document.dense.tensors):
        raise Corrupt(f"{what}: holds other tensors than its document says")
    return found


def _read(path: Path, what: str) -> dict[str, Tensor]:
    try:
        return tensor_files.read(path, what)
    except InvalidInput as error:
        raise Corrupt(error.message) from None
