"""What a delta that is being made has been told so far; of what is said twice, the last counts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from anabranch_publish import stored_numbers
from anabranch_publish.contents import Sources
from anabranch_publish.merging import RowChange, merge
from anabranch_publish.stored_numbers import Array, Keys, Numbers
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_tensor_name
from anabranch_wire.tensor_files import Tensor

__all__ = ["Changes"]

_ROW_TYPES: Final = ("F32", "F16", "BF16")


class Changes:
    """Rows and weights in memory, copied from their owner. For one thread."""

    def __init__(self, item_tables: Mapping[str, Path], golden: tuple[Path, ...]) -> None:
        for name in item_tables:
            check_tensor_name(name)
        self._item_tables = dict(item_tables)
        self._golden = golden
        self._rows: dict[str, list[RowChange]] = {}
        self._dims: dict[str, int] = {}
        self._dense: dict[str, Numbers] = {}
        self._complete = False

    def upsert(
        self, table: str, keys: Keys, rows: Array, dtype: Literal["bf16"] | None = None
    ) -> None:
        """See `DeltaDraft.upsert`."""
        what = f"table {check_tensor_name(table)!r}"
        bits, key_dtype = stored_numbers.keys(keys, what)
        found = stored_numbers.numbers(rows, dtype, what)
        if found.dtype not in _ROW_TYPES:
            raise InvalidInput(
                f"{what}: rows are float32, float16 or bf16, found {found.dtype}: convert them"
            )
        shape = found.array.shape
        if len(shape) != 2 or shape[0] != len(bits) or shape[1] < 1:
            raise InvalidInput(
                f"{what}: expected {len(bits)} rows for {len(bits)} keys, found {list(shape)}"
            )
        if self._dims.setdefault(table, shape[1]) != shape[1]:
            raise InvalidInput(
                f"{what}: rows of {shape[1]} numbers, and before that of {self._dims[table]}"
            )
        if (index := stored_numbers.first_not_finite(found)) is not None:
            key = bits.view(_numpy_key(key_dtype))[index]
            raise InvalidInput(
                f"{what}: the row of key {key} has a NaN or an infinity; nothing is published: "
                "look for what made it in training"
            )
        self._rows.setdefault(table, []).append(RowChange(bits, key_dtype, found))

    def delete(self, table: str, keys: Keys) -> None:
        """See `DeltaDraft.delete`."""
        bits, key_dtype = stored_numbers.keys(keys, f"table {check_tensor_name(table)!r}")
        self._rows.setdefault(table, []).append(RowChange(bits, key_dtype, None))

    def dense(self, weights: Mapping[str, Array], *, complete: bool) -> None:
        """See `DeltaDraft.dense`."""
        found: dict[str, Numbers] = {}
        for name, weight in weights.items():
            what = f"weight {check_tensor_name(name)!r}"
            found[name] = stored_numbers.numbers(weight, None, what)
            if (index := stored_numbers.first_not_finite(found[name])) is not None:
                raise InvalidInput(
                    f"{what}: has a NaN or an infinity at index {index}; nothing is published: "
                    "look for what made it in training"
                )
        for name in found:  # the whole of it is new: rows that were said before are no more
            self._rows.pop(name, None)
        self._dense.update(found)
        self._complete = self._complete or complete

    def sources(self, dims: Mapping[str, int]) -> Sources:
        """Return what the files are made of.

        Args:
            dims: numbers per row of tables that are known.

        Raises:
            InvalidInput: rows of a table have other numbers, or how many is not known at all.
        """
        tables = {}
        for name, changes in self._rows.items():
            dim = self._dims.get(name, dims.get(name))
            if dim is None:
                raise InvalidInput(
                    f"table {name!r}: only deletes, and how many numbers its rows have is said "
                    "nowhere: the version's manifest.json lists no such table. One that the graph "
                    "indexes by row number has no deletes"
                )
            if dims.get(name, dim) != dim:
                raise InvalidInput(
                    f"table {name!r}: rows of {dim} numbers, in the version they have {dims[name]}"
                )
            tables[name] = merge(changes, dim)
        return Sources(
            tables=tables,
            dense={
                name: Tensor(held.dtype, held.array.shape, (held.array,))
                for name, held in self._dense.items()
            },
            complete=self._complete,
            item_tables=self._item_tables,
            golden=self._golden,
        )


def _numpy_key(key_dtype: str) -> str:
    """Return NumPy's name of a key's datatype."""
    return "<u8" if key_dtype == "uint64" else "<i8"
