"""Tables that were cut out of a graph: their rows become a segment, read where they are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.optimized import Optimized, TableSource
from anabranch_model_store.model_yaml import TableMeaning
from anabranch_model_store.row_formats import TableSize
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.table_files import RowChunk
from anabranch_model_store.table_files.sources import Values, rows_per_chunk
from anabranch_model_store.table_import import BytesDone, write_table
from anabranch_model_store.version_tables import room_for
from anabranch_runtime.store import SegmentBuilder
from anabranch_wire.document_fields import KeyType, RowType
from anabranch_wire.errors import Unavailable, Unsupported
from anabranch_wire.missing import Original
from anabranch_wire.plan import MAX_ROWS, PlanTable

__all__ = [
    "SEGMENT_FILE",
    "TensorRows",
    "check_cut_tables",
    "cut_bytes",
    "cut_tables",
    "import_cut_tables",
]

SEGMENT_FILE: Final = "tables/0000.seg"
"""Name of the segment in a version folder, and in plans."""
_FORMAT: Final = "cut segment 1"
_TYPES: Final[Mapping[ir.DataType, RowType]] = {
    ir.DataType.FLOAT: "f32",
    ir.DataType.FLOAT16: "f16",
    ir.DataType.BFLOAT16: "bf16",
}
_STORED: Final[Mapping[ir.DataType, str]] = {
    ir.DataType.FLOAT: "<f4",
    ir.DataType.FLOAT16: "<f2",
    ir.DataType.BFLOAT16: "<u2",
}
"""How external data holds a number; bfloat16 as its bits."""


class TensorRows:
    """A `RowSource` over a tensor of a model.

    External data is read some MiB at a time and never mapped: pages of a mapping would stay with
    this process, all of a table in the end.

    Args:
        tensor: [rows, dim], f32, f16 or bf16.
    """

    def __init__(self, tensor: ir.TensorProtocol) -> None:
        self._tensor = tensor
        self.rows, self.dim = tensor.shape.numpy()
        self.dtype: RowType = _TYPES[tensor.dtype]
        self.key_dtype: KeyType | None = None

    @staticmethod
    def can_read(tensor: ir.TensorProtocol) -> bool:
        """Whether the numbers of a matrix are of a type that rows have."""
        return tensor.dtype in _TYPES

    def chunks(self) -> Iterator[RowChunk]:
        """Yield all rows; see `RowSource`.

        Raises:
            Unavailable: external data cannot be read, or is shorter than it was.
        """
        step = rows_per_chunk(self.dim, self.dtype)
        first = 0
        for part in self._parts(step):
            values: Values = (
                np.ascontiguousarray(part, np.float16)
                if self.dtype == "f16"
                else np.ascontiguousarray(part, np.float32)
            )
            yield RowChunk(first, None, values)
            first += len(values)

    def _parts(self, step: int) -> Iterator[NDArray[np.generic]]:
        """Yield `step` rows at a time as numbers of any type."""
        tensor = self._tensor
        if isinstance(tensor, ir.ExternalTensor):
            yield from self._read(tensor, step)
            return
        array = tensor.numpy()
        for first in range(0, self.rows, step):
            yield array[first : first + step]

    def _read(self, tensor: ir.ExternalTensor, step: int) -> Iterator[NDArray[np.generic]]:
        name = tensor.name or "of the graph"
        stored = np.dtype(_STORED[tensor.dtype])
        try:
            with Path(tensor.path).open("rb", buffering=0) as file:
                file.seek(tensor.offset or 0)
                for first in range(0, self.rows, step):
                    count = min(step, self.rows - first) * self.dim
                    numbers = np.fromfile(file, stored, count)
                    if len(numbers) < count:
                        raise Unavailable(f"table {name!r}: its file was cut off meanwhile")
                    part = numbers.reshape(-1, self.dim)
                    yield _widened(part) if stored.kind == "u" else part
        except OSError as error:
            raise Unavailable(f"table {name!r} cannot be read: {error.strerror}") from None


def _widened(bits: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return bfloat16 numbers as the float32 that they are."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def cut_bytes(plans: Sequence[PlanTable]) -> int:
    """Return what tables that were cut out will take in memory, once for all workers."""
    needed = 0
    for plan in plans:
        assert plan.capacity is not None
        size = TableSize(plan.rows, plan.dim, plan.dtype, plan.keys)
        needed += size.segment_bytes() + size.generation_bytes(plan.capacity)
    return needed


def cut_tables(
    tables: Sequence[TableSource], meanings: Mapping[str, TableMeaning], reserve: float
) -> tuple[PlanTable, ...]:
    """Return how the store keeps tables that were cut out.

    Rows keep the type that they have in the model, unless model.yaml says otherwise.

    Args:
        tables: of an optimised model.
        meanings: `tables` of model.yaml.
        reserve: share of a table's rows that deltas may change at a time, where it does not say.
    """
    plans = []
    for table in tables:
        meaning = meanings.get(table.name, TableMeaning())
        share = reserve if meaning.capacity.reserve is None else meaning.capacity.reserve
        own = _TYPES[table.tensor.dtype]
        plans.append(
            PlanTable(
                name=table.name,
                file=SEGMENT_FILE,
                rows=table.rows,
                dim=table.dim,
                dtype=own if meaning.rows == "f32" else meaning.rows,
                keys="dense_id",
                missing=Original(),
                capacity=room_for(table.rows, share, MAX_ROWS),
            )
        )
    return tuple(plans)


def check_cut_tables(optimized: Optimized, meanings: Mapping[str, TableMeaning]) -> None:
    """Check that tables whose rows are to have fewer bits left the graph: only the store has such.

    Args:
        optimized: a model.
        meanings: `tables` of model.yaml.

    Raises:
        Unsupported: one stays in the graph; says why.
    """
    gone = {table.name for table in optimized.tables}
    for name, meaning in meanings.items():
        if meaning.rows == "f32" or name in gone:
            continue
        reasons = [each.reason for each in optimized.verdicts if each.table == name]
        reason = reasons[0] if reasons else "no lookup of the graph reads a table of that name"
        raise Unsupported(
            f"model.yaml: tables[{name!r}].rows: {meaning.rows}: rows have fewer bits where they "
            f"are cut out of the graph, and these are not: {reason}"
        )


def import_cut_tables(
    tables: Sequence[TableSource],
    plans: Sequence[PlanTable],
    digest: str,
    cache: SegmentCache,
    on_bytes: BytesDone,
) -> Path:
    """Return the segment with the rows of tables that were cut out, in the cache folder.

    Args:
        tables: of an optimised model.
        plans: how the store keeps each.
        digest: of the files that the model is made of.
        cache: of segments.
        on_bytes: told how far it is.

    Raises:
        InvalidInput: a number is not finite, or the row type cannot hold it.
        Unavailable: the cache cannot be written.
    """
    total = sum(table.rows * (8 + 4 * table.dim) for table in tables)

    def write(folder: Path, name: str) -> None:
        with SegmentBuilder(folder, name) as builder:
            done = 0
            for table, plan in zip(tables, plans, strict=True):
                source = TensorRows(table.tensor)
                for read in write_table(builder, plan, source, f"table {table.name!r}"):
                    done += read
                    on_bytes(done, total)
            builder.finish()

    lines = [_FORMAT, digest, *(f"{plan.name!r} {plan.dtype}" for plan in plans)]
    return cache.get("\n".join(lines), write, lambda done: on_bytes(min(done, total), total))
