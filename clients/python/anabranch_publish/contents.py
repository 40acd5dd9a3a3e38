"""The files of one attempt at a delta, and what its document says of them."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from anabranch_publish import tensor_files
from anabranch_publish.merging import MergedRows
from anabranch_wire import golden
from anabranch_wire.delta import DenseTensors, ItemTable, TableRows
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import InvalidInput, NotFound
from anabranch_wire.tensor_files import Tensor

__all__ = ["Contents", "Sources", "write"]

_DENSE_FILE: Final = "dense.safetensors"
_ROW_TYPES: Final[Mapping[str, Literal["f32", "f16", "bf16"]]] = {
    "F32": "f32", "F16": "f16", "BF16": "bf16",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """What a delta is made of.

    Attributes:
        tables: table -> its rows.
        dense: original name -> weight.
        complete: whether these are all dense weights of the model.
        item_tables: item table -> the file that takes its place.
        golden: requests to check.
    """

    tables: Mapping[str, MergedRows]
    dense: Mapping[str, Tensor]
    complete: bool
    item_tables: Mapping[str, Path]
    golden: Sequence[Path]


@dataclass(frozen=True, slots=True)
class Contents:
    """What the document says of the files; see `anabranch_wire.delta.Delta`."""

    tables: tuple[TableRows, ...]
    dense: DenseTensors | None
    item_tables: tuple[ItemTable, ...]
    golden: tuple[str, ...]
    files: tuple[ListedFile, ...]

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(file.bytes for file in self.files)


def write(folder: Path, sources: Sources) -> Contents:
    """Write the files of a delta into an empty folder; they are on disk when this returns.

    Raises:
        NotFound: a file is not there.
        InvalidInput: a golden request or a name is refused.
        OSError: the file system refused.
    """
    files: list[ListedFile] = []
    tables: list[TableRows] = []
    for index, (name, rows) in enumerate(sources.tables.items()):
        path = f"{index:04}.safetensors"
        files.append(tensor_files.write(folder, path, rows.tensors()))
        tables.append(
            TableRows(
                name=name,
                file=path,
                dim=rows.dim,
                dtype=_ROW_TYPES[rows.dtype],
                key_dtype=rows.key_dtype,
                upserts=rows.upserts,
                deletes=len(rows.deleted),
            )
        )
    dense = None
    if sources.dense:
        files.append(tensor_files.write(folder, _DENSE_FILE, sources.dense))
        names = tuple(sources.dense)
        dense = DenseTensors(file=_DENSE_FILE, tensors=names, complete=sources.complete)
    items: list[ItemTable] = []
    for index, (name, source) in enumerate(sources.item_tables.items()):
        path = f"items/{index:04}{source.suffix}"
        files.append(_copy(source, folder, path))
        items.append(ItemTable(name=name, file=path))
    requests: list[str] = []
    for index, source in enumerate(sources.golden):
        path = f"golden/{index:04}.json"
        files.append(_copy(source, folder, path))
        golden.decode((folder / path).read_bytes(), str(source))
        requests.append(path)
    return Contents(tuple(tables), dense, tuple(items), tuple(requests), tuple(files))


def _copy(source: Path, folder: Path, path: str) -> ListedFile:
    if not source.is_file():
        raise NotFound(f"{source}: no such file")
    if path.startswith("items/") and source.suffix != ".parquet":
        raise InvalidInput(f"{source}: item tables end in .parquet")
    target = folder / path
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    return tensor_files.adopt_file(folder, path)
