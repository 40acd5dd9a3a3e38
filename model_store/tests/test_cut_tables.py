"""Rows of tensors as the store gets them: from memory, or out of external files by ranges."""

import mmap
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.optimized import TableSource
from anabranch_model_store import cut_tables as module
from anabranch_model_store.cut_tables import (
    SEGMENT_FILE,
    TensorRows,
    cut_bytes,
    cut_tables,
    import_cut_tables,
)
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_runtime.store import Capacity, Segment, StoreWriter
from anabranch_wire.errors import InvalidInput, Unavailable
from anabranch_wire.missing import Original

TYPES: Mapping[str, tuple[ir.DataType, type]] = {
    "f32": (ir.DataType.FLOAT, np.float32),
    "f16": (ir.DataType.FLOAT16, np.float16),
    "bf16": (ir.DataType.BFLOAT16, ml_dtypes.bfloat16),
}


def numbers(rows: int, dim: int, dtype: type = np.float32) -> NDArray[np.generic]:
    return np.random.default_rng(3).standard_normal((rows, dim)).astype(dtype)


def external(folder: Path, array: NDArray[np.generic], row_type: str = "f32") -> ir.ExternalTensor:
    """Write a tensor as external data, behind something else."""
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(b"0123456789abcdef" + array.tobytes() + b"end")
    return ir.ExternalTensor(
        "weights.bin", 16, array.nbytes, TYPES[row_type][0],
        shape=ir.Shape(array.shape), name="emb", base_dir=folder,
    )  # fmt: skip


def source(array: NDArray[np.generic], name: str = "emb") -> TableSource:
    return TableSource(name, ir.tensor(array, name=name))


@pytest.fixture
def cache(tmp_path: Path) -> SegmentCache:
    return SegmentCache(tmp_path / "segments", 1 << 30)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "rows_per_chunk", lambda dim, dtype: 7)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("row_type", TYPES)
@pytest.mark.parametrize("rows", [1, 7, 20])
def test_external_rows_are_those_in_memory(tmp_path: Path, row_type: str, rows: int) -> None:
    array = numbers(rows, 3, TYPES[row_type][1])

    for tensor in (ir.tensor(array), external(tmp_path, array, row_type)):
        found = TensorRows(tensor)
        chunks = list(found.chunks())
        assert (found.rows, found.dim, found.dtype) == (rows, 3, row_type)
        assert [chunk.first_row for chunk in chunks] == list(range(0, rows, 7))
        expected = np.float16 if row_type == "f16" else np.float32
        assert {chunk.values.dtype for chunk in chunks} == {np.dtype(expected)}
        values = np.concatenate([chunk.values for chunk in chunks])
        np.testing.assert_array_equal(values, array.astype(expected))


def test_external_rows_are_never_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = external(tmp_path, numbers(50, 4))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("mapped")

    monkeypatch.setattr(mmap, "mmap", refuse)

    assert sum(len(chunk.values) for chunk in TensorRows(tensor).chunks()) == 50
    assert tensor.raw is None


def test_a_file_that_was_cut_off_or_is_gone_is_named(tmp_path: Path) -> None:
    tensor = external(tmp_path, numbers(50, 4))
    whole = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(whole[:-50])

    with pytest.raises(Unavailable, match="table 'emb': its file was cut off"):
        list(TensorRows(tensor).chunks())
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(Unavailable, match="table 'emb' cannot be read: No such file"):
        list(TensorRows(tensor).chunks())


@pytest.mark.parametrize("row_type", TYPES)
def test_tables_keep_the_type_of_the_model(row_type: str) -> None:
    (plan,) = cut_tables([source(numbers(2000, 3, TYPES[row_type][1]))], {}, reserve=0.1)

    assert (plan.name, plan.file, plan.rows, plan.dim) == ("emb", SEGMENT_FILE, 2000, 3)
    assert (plan.dtype, plan.keys, plan.missing) == (row_type, "dense_id", Original())


def test_model_yaml_says_which_type_and_how_much_room_a_table_has() -> None:
    text = (
        b"tables: {emb: {rows: f16, capacity: {reserve: 3.0}}}\n"
        b"optimize: {parity: {max_abs_diff: 0.01}}\n"
    )
    meaning = read_yaml(text, ModelMeaning, "model.yaml")
    given = source(numbers(2000, 3))

    (own,) = cut_tables([given], {}, reserve=0.0)
    (changed,) = cut_tables([given], meaning.tables, reserve=0.0)

    assert (own.dtype, changed.dtype) == ("f32", "f16")
    assert own.capacity is not None
    assert changed.capacity is not None
    assert changed.capacity.arena_rows >= 6000 > own.capacity.arena_rows


def test_memory_of_tables_is_known_before_they_are_imported(
    tmp_path: Path, cache: SegmentCache
) -> None:
    tables = [source(numbers(3000, 5), "a"), source(numbers(100, 8), "b")]
    plans = cut_tables(tables, {}, reserve=0.5)

    path = import_cut_tables(tables, plans, "digest", cache, lambda done, total: None)

    segment = Segment.open(path)
    rooms = [Capacity(p.capacity.arena_rows, p.capacity.keys) for p in plans if p.capacity]
    writer = StoreWriter.create(segment, rooms)
    assert len(rooms) == 2
    kept = segment.bytes + writer.generation.bytes
    assert abs(cut_bytes(plans) - kept) < 64 * 1024  # headers and rounding up to pages


@pytest.mark.usefixtures("small_chunks")
def test_rows_of_several_tables_become_one_segment(tmp_path: Path, cache: SegmentCache) -> None:
    first, second = numbers(30, 4), numbers(9, 2, np.float16)
    tables = [TableSource("a", external(tmp_path / "x", first)), source(second, "b")]
    plans = cut_tables(tables, {}, reserve=0.0)
    told: list[tuple[int, int]] = []

    path = import_cut_tables(
        tables, plans, "digest", cache, lambda done, total: told.append((done, total))
    )

    segment = Segment.open(path)
    assert [(one.name, one.rows, one.row_type) for one in segment.tables] == [
        ("a", 30, "f32"),
        ("b", 9, "f16"),
    ]
    generation = StoreWriter.create(segment, [Capacity(1, 30), Capacity(1, 9)]).generation
    for number, expected in enumerate((first, second)):
        rows, there = generation.rows(number, np.arange(len(expected), dtype=np.uint64), 1)
        assert there.all()
        np.testing.assert_array_equal(rows, expected.astype(np.float32))
    assert told[-1] == (30 * (8 + 16) + 9 * (8 + 8),) * 2
    assert told == sorted(told)


def test_a_segment_is_made_once_for_the_same_rows(
    cache: SegmentCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [source(numbers(10, 4))]
    plans = cut_tables(tables, {}, reserve=0.0)

    def silent(done: int, total: int) -> None: ...

    path = import_cut_tables(tables, plans, "digest", cache, silent)

    assert import_cut_tables(tables, plans, "other", cache, silent) != path
    monkeypatch.setattr(module, "write_table", None)
    assert import_cut_tables(tables, plans, "digest", cache, silent) == path


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_by_row(cache: SegmentCache, wrong: float) -> None:
    array = numbers(10, 4)
    array[6, 2] = wrong
    tables = [source(array)]
    plans = cut_tables(tables, {}, reserve=0.0)

    with pytest.raises(InvalidInput, match=r"^table 'emb': row 6 \(key 6\), column 2: found"):
        import_cut_tables(tables, plans, "digest", cache, lambda done, total: None)
