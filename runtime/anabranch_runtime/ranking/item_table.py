"""Features of candidates by id: one file in Arrow IPC that all workers map, in memory once.

The loader writes it (`anabranch_model_store.item_tables`); docs/formats.md, "Item tables", says
what is in it. Mapping a file looks at its header alone; `verify` reads all of it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.checksums import crc32c
from anabranch_runtime.ranking.item_columns import ItemColumn
from anabranch_runtime.ranking.item_keys import (
    find_rows,
    hash_integers,
    hash_strings,
    same_strings,
)
from anabranch_runtime.ranking.item_layout import (
    FIRST,
    FORMAT,
    HASH,
    HEADER,
    HEADER_CHECKSUM,
    KEY,
    ItemHeader,
    all_forms,
    arrow_type,
    feature_column,
    pyarrow,
)
from anabranch_runtime.ranking.plans import ItemTablePlan
from anabranch_runtime.ranking.requests import ArrayColumn
from anabranch_wire.errors import Corrupt, Unavailable, Unsupported

__all__ = ["ItemTable"]

_BLOCK: Final = 1 << 24


class ItemTable:
    """Rows of features by id. Immutable; any thread may read it.

    The memory is the file's, which must not be written or cut short meanwhile.

    Args:
        path: the file.

    Attributes:
        rows: items.
        header: of the file.

    Raises:
        Corrupt: the file is damaged; the message names the file and the part of it.
        Unavailable: it cannot be read, or pyarrow is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._name = f"item table {path.name}"
        arrow = pyarrow(self._name)
        with self._reading(arrow):
            reader = arrow.ipc.open_file(arrow.memory_map(str(path)))
            self.header = _read_header(reader.schema.metadata or {}, self._name)
            self._columns: Mapping[str, ItemColumn] = self._view(reader, arrow)
        self.rows = self.header.rows
        self._hashes = self._columns[HASH].values.view(np.uint64)
        self._first = self._columns[FIRST].values.view(np.int64)

    @classmethod
    def open(cls, plan: ItemTablePlan) -> "ItemTable":
        """Map the item table of a plan.

        Raises:
            Corrupt: it is damaged, or lacks a feature of the plan.
            Unavailable: it cannot be read, or pyarrow is not installed.
        """
        table = cls(Path(plan.path))
        for feature in (*plan.columns, *[one.column for one in plan.sequences]):
            if feature not in table.header.features:
                raise Corrupt(f"{table._name}: header: feature {feature!r} is missing")
        return table

    def find(self, ids: ArrayColumn) -> NDArray[np.int64]:
        """Return the row of each id; -1 where the table has none, or the id is missing.

        Args:
            ids: one value a row, of the type of the table's ids.

        Raises:
            ValueError: they are of the other type.
        """
        header = self.header
        if (ids.offsets is not None) != (header.key == "string"):
            raise ValueError(f"{self._name}: ids are not of type {header.key}")
        if ids.offsets is None:
            rows = find_rows(
                self._hashes, self._first, hash_integers(ids.values.view(np.int64), header.seed)
            )
        else:
            rows = self._find_strings(ids)
        if ids.missing is not None:
            rows[ids.missing != 0] = -1
        return rows

    def take(self, feature: str, rows: NDArray[np.int64]) -> ArrayColumn:
        """Return a feature's values in `rows`; those of -1 and of null values are missing.

        Args:
            feature: one of the table's.
            rows: as `find` returns them.

        Raises:
            KeyError: the table does not have the feature.
            IndexError: there is no such row.
        """
        return self._columns[feature_column(feature)].take(rows)

    def verify(self, on_bytes: Callable[[int], None] = lambda done: None) -> None:
        """Read every byte that matters and compare it with its checksum.

        Args:
            on_bytes: told how much has been read.

        Raises:
            Corrupt: they differ; the message names the column and its part.
        """
        done = 0
        for name, column in self._columns.items():
            checksums = dict(self.header.checksums.get(name, {}))
            for part, array in column.parts():
                data = array.view(np.uint8)
                checksum = 0
                for begin in range(0, len(data), _BLOCK):
                    block = data[begin : begin + _BLOCK]
                    checksum = crc32c(block, checksum)
                    done += len(block)
                    on_bytes(done)
                if checksums.pop(part, None) != checksum:
                    raise Corrupt(f"{self._name}: column {name!r}, {part}: checksum differs")
            if checksums:
                raise Corrupt(f"{self._name}: column {name!r}, {min(checksums)}: missing")

    def _view(self, reader: Any, arrow: Any) -> Mapping[str, ItemColumn]:  # noqa: ANN401
        """Return the columns of the file's only record batch; pyarrow comes without types."""
        forms = all_forms(self.header)
        found = {field.name: field.type for field in reader.schema}
        if found != {name: arrow_type(form, arrow) for name, form in forms.items()}:
            raise Corrupt(f"{self._name}: schema: columns are others than the header says")
        if reader.num_record_batches != 1:
            raise Corrupt(f"{self._name}: {reader.num_record_batches} record batches; expected one")
        batch = reader.get_batch(0)
        if batch.num_rows != self.header.rows:
            raise Corrupt(f"{self._name}: {batch.num_rows} rows; expected {self.header.rows}")
        columns = {}
        for name, form in forms.items():
            try:
                columns[name] = ItemColumn.of(batch.column(name), form)
            except ValueError as error:
                raise Corrupt(f"{self._name}: column {name!r}, {error}") from None
        return columns

    def _find_strings(self, ids: ArrayColumn) -> NDArray[np.int64]:
        """Return rows by hash where the strings are the same."""
        keys, header = self._columns[KEY], self.header
        rows = find_rows(self._hashes, self._first, hash_strings(ids, header.seed, header.longest))
        at = np.flatnonzero(rows >= 0)
        own = ArrayColumn(keys.values, keys.texts)
        rows[at[~same_strings(ids, at, own, rows[at])]] = -1
        return rows

    @contextmanager
    def _reading(self, arrow: Any) -> Iterator[None]:  # noqa: ANN401 (pyarrow has no types)
        """Turn what pyarrow raises in the block into our errors."""
        try:
            yield
        except (arrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise Unavailable(f"{self._name}: cannot be read: {error.strerror}") from None
            text = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise Corrupt(f"{self._name}: no Arrow IPC file: {text}") from None


def _read_header(metadata: Mapping[bytes, bytes], name: str) -> ItemHeader:
    """Return the header that a schema carries.

    Raises:
        Corrupt: it is damaged.
        Unsupported: it is of a newer format.
    """
    text = metadata.get(HEADER, b"")
    if metadata.get(HEADER_CHECKSUM) != str(crc32c(text)).encode():
        raise Corrupt(f"{name}: header: checksum differs")
    try:
        header = msgspec.json.decode(text, type=ItemHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{name}: header: {error}") from None
    if header.format > FORMAT:
        raise Unsupported(f"{name}: format {header.format} is newer than this release reads")
    return header
