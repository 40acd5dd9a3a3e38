"""Which tables lie beside the ONNX file, and in which files.

A manifest says it. Without one, every file below `tables/` is a table that has the name of the
file without its suffix; a segment holds tables under their own names.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from anabranch_model_store.table_files.arrow_files import ARROW_SUFFIXES
from anabranch_model_store.table_files.npy_files import PARTS, part_of
from anabranch_model_store.version_files import VersionFiles
from anabranch_wire.errors import InvalidInput
from anabranch_wire.manifest import TableFile

__all__ = ["SEGMENT_SUFFIX", "DeclaredTable", "declared_tables"]

SEGMENT_SUFFIX: Final = ".seg"
_FOLDER: Final = "tables"
_SUFFIXES: Final = (".safetensors", ".npy", *ARROW_SUFFIXES, SEGMENT_SUFFIX)


@dataclass(frozen=True, slots=True)
class DeclaredTable:
    """A table and where its rows are.

    Attributes:
        name: of the table; of a segment without a manifest that of the file, which says nothing.
        file: path relative to the version folder.
        claim: what the manifest says of it; None without one.
    """

    name: str
    file: str
    claim: TableFile | None = None

    @property
    def is_segment(self) -> bool:
        """Whether the file is a segment, which may hold further tables."""
        return self.file.endswith(SEGMENT_SUFFIX)

    def files(self, version: VersionFiles) -> tuple[str, ...]:
        """Return all files of the table, its own first."""
        if not self.file.endswith(".npy"):
            return (self.file,)
        beside = (part_of(self.file, part) for part in PARTS)
        return (self.file, *(file for file in beside if file in version))


def declared_tables(files: VersionFiles) -> tuple[DeclaredTable, ...]:
    """Return the tables of a version, in the order of the manifest or of the paths.

    Raises:
        InvalidInput: two files would be one table.
    """
    if files.manifest is not None:
        return tuple(
            DeclaredTable(claim.name, claim.file, claim) for claim in files.manifest.tables
        )
    beside = tuple(f".{part}.npy" for part in PARTS)
    found: dict[str, DeclaredTable] = {}
    for path in files.below(_FOLDER, *_SUFFIXES):
        if path.endswith(beside):
            continue
        name = PurePosixPath(path).name
        table = DeclaredTable(name[: -len(PurePosixPath(path).suffix)], path)
        if table.name in found:
            raise InvalidInput(f"{path}: {found[table.name].file} is table {table.name!r} already")
        found[table.name] = table
    return tuple(found.values())
