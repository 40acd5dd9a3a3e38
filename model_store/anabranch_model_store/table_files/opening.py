"""From a declared table to its rows, by the suffix of its file."""

from anabranch_model_store.table_files.arrow_files import ARROW_SUFFIXES, open_arrow
from anabranch_model_store.table_files.declared import DeclaredTable
from anabranch_model_store.table_files.npy_files import PARTS, open_npy, part_of
from anabranch_model_store.table_files.safetensors_files import open_safetensors
from anabranch_model_store.table_files.segment_files import open_segment_table
from anabranch_model_store.table_files.sources import RowSource
from anabranch_model_store.version_files import VersionFiles
from anabranch_wire.errors import InvalidInput

__all__ = ["open_table_file"]


def open_table_file(files: VersionFiles, table: DeclaredTable) -> RowSource:
    """Return the rows of a table, checked against what its manifest says.

    Only headers are read.

    Raises:
        NotFound: the version has no such file, or the segment no such table.
        Corrupt: it is no segment of a known format.
        InvalidInput: the file is of no kind that is read, is malformed, or is not what the manifest
            says; the message names file, expected and found.
        Unavailable: it cannot be read.
    """
    path = files.path(table.file)
    source: RowSource
    if table.file.endswith(".safetensors"):
        source = open_safetensors(path, table.file)
    elif table.file.endswith(".npy"):
        beside = {part: part_of(table.file, part) for part in PARTS}
        parts = {part: files.path(file) for part, file in beside.items() if file in files}
        source = open_npy(path, table.file, parts)
    elif table.is_segment:
        source = open_segment_table(path, table.file, table.name)
    elif table.file.endswith(ARROW_SUFFIXES):
        source = open_arrow(path, table.file)
    else:
        raise InvalidInput(
            f"{table.file}: no kind of table file that is read; expected .safetensors, .npy, "
            f"{', '.join(ARROW_SUFFIXES)} or .seg"
        )
    _check_claim(table, source)
    return source


def _check_claim(table: DeclaredTable, source: RowSource) -> None:
    claim = table.claim
    if claim is None:
        return
    # Row numbers are of no type, and a segment does not tell signed keys from unsigned ones.
    says_nothing = source.key_dtype is None or table.is_segment
    for what, said, found in (
        ("rows", claim.rows, source.rows),
        ("dim", claim.dim, source.dim),
        ("dtype", claim.dtype, source.dtype),
        ("key_dtype", claim.key_dtype, claim.key_dtype if says_nothing else source.key_dtype),
    ):
        if said != found:
            raise InvalidInput(
                f"{table.file}: the manifest says {what} {said} of table {table.name!r}, the file "
                f"has {found}; publish the version again"
            )
