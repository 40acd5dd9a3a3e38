"""Every kind of table file: what is read, and what is refused in which words."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from anabranch_model_store.table_files import (
    CHUNK_BYTES,
    RowSource,
    checked_chunks,
    declared_tables,
    open_table_file,
)
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable
from anabranch_wire.manifest import Manifest, TableFile, encode
from anabranch_wire.snapshots import Snapshot

KEYS = np.array([5, -1, 0, -(2**63), 2**63 - 1], np.int64)
VALUES = np.arange(15, dtype=np.float32).reshape(5, 3) / 4

Array = NDArray[Any]


def folder(root: Path) -> Path:
    tables = root / "tables"
    tables.mkdir(exist_ok=True)
    return tables


def write_safetensors(root: Path, **tensors: Array) -> str:
    save_file(tensors, folder(root) / "t.safetensors")
    return "tables/t.safetensors"


def write_npy(root: Path, *, values: Array, **parts: Array) -> str:
    np.save(folder(root) / "t.npy", values)
    for part, array in parts.items():
        np.save(folder(root) / f"t.{part}.npy", array)
    return "tables/t.npy"


def arrow_table(fixed: bool = True, /, *, values: Array, **columns: Array) -> Any:
    pa = pytest.importorskip("pyarrow")
    flat = pa.array(values.reshape(-1))
    if fixed:
        lists = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    else:
        offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), flat)
    names = {"keys": "key"}
    return pa.table({**{names.get(k, k): pa.array(v) for k, v in columns.items()}, "values": lists})


def write_parquet(root: Path, *, values: Array, **columns: Array) -> str:
    table = arrow_table(False, values=values, **columns)
    import_module("pyarrow.parquet").write_table(table, folder(root) / "t.parquet")
    return "tables/t.parquet"


def write_arrow(root: Path, *, values: Array, **columns: Array) -> str:
    table = arrow_table(values=values, **columns)
    pa = import_module("pyarrow")
    path = str(folder(root) / "t.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return "tables/t.arrow"


KINDS = [write_safetensors, write_npy, write_parquet, write_arrow]
every_kind = pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__[6:])


def files_of(root: Path) -> VersionFiles:
    return verify_version(root, Snapshot("m", 1))


def source_of(root: Path) -> RowSource:
    files = files_of(root)
    (table,) = declared_tables(files)
    return open_table_file(files, table)


def rows_of(source: RowSource) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    chunks = list(source.chunks())
    keys = np.concatenate([chunk.row_keys() for chunk in chunks])
    return keys, np.concatenate([chunk.numbers() for chunk in chunks])


@every_kind
@pytest.mark.parametrize("key_type", [np.int64, np.uint64])
@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "f32"), (np.float16, "f16")])
def test_keys_and_rows_are_what_was_written(
    tmp_path: Path, write: Callable[..., str], key_type: type, dtype: type, name: str
) -> None:
    write(tmp_path, keys=KEYS.astype(key_type), values=VALUES.astype(dtype))

    source = source_of(tmp_path)

    assert (source.rows, source.dim, source.dtype) == (5, 3, name)
    assert source.key_dtype == np.dtype(key_type).name
    keys, values = rows_of(source)
    assert np.array_equal(keys.view(np.int64), KEYS)
    assert np.array_equal(values, VALUES)


@every_kind
def test_without_keys_row_numbers_are_the_keys(tmp_path: Path, write: Callable[..., str]) -> None:
    write(tmp_path, values=VALUES)
    source = source_of(tmp_path)
    assert source.key_dtype is None
    assert rows_of(source)[0].tolist() == [0, 1, 2, 3, 4]


@every_kind
def test_int8_rows_come_with_scale_and_bias(tmp_path: Path, write: Callable[..., str]) -> None:
    numbers = np.array([[-128, 0, 127], [1, 2, 3]], np.int8)
    scale, bias = np.array([0.5, 2], np.float16), np.array([1, -1], np.float16)
    write(tmp_path, keys=KEYS[:2], values=numbers, scale=scale, bias=bias)
    source = source_of(tmp_path)
    assert source.dtype == "int8"
    assert rows_of(source)[1].tolist() == [[-63, 1, 64.5], [1, 3, 5]]


def test_bfloat16_rows_are_the_float32_that_they_are(tmp_path: Path) -> None:
    bits = (VALUES.view(np.uint32) >> 16).astype("<u2")
    data = {"keys": KEYS.tobytes(), "values": bits.tobytes()}
    header: dict[str, object] = {
        "keys": {"dtype": "I64", "shape": [5], "data_offsets": [0, 40]},
        "values": {"dtype": "BF16", "shape": [5, 3], "data_offsets": [40, 70]},
    }
    text = json.dumps(header).encode()
    path = folder(tmp_path) / "t.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data.values()))
    source = source_of(tmp_path)
    assert source.dtype == "bf16"
    assert np.array_equal(rows_of(source)[1], VALUES)  # quarters need few bits


@every_kind
def test_chunks_are_a_few_mebibytes_each(tmp_path: Path, write: Callable[..., str]) -> None:
    values = np.zeros((100_000, 32), np.float32)
    values[:, 0] = np.arange(len(values))
    write(tmp_path, keys=np.arange(len(values)), values=values)
    chunks = list(source_of(tmp_path).chunks())
    assert len(chunks) >= 4
    assert max(chunk.bytes for chunk in chunks) <= CHUNK_BYTES
    starts = np.cumsum([0, *(len(chunk.values) for chunk in chunks)])
    assert [chunk.first_row for chunk in chunks] == starts[:-1].tolist()
    assert all(chunk.numbers()[0, 0] == chunk.first_row for chunk in chunks)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"keys": KEYS.astype(np.int32), "values": VALUES}, "keys"),
        ({"keys": KEYS[:4], "values": VALUES}, "[4]"),
        ({"keys": KEYS, "values": VALUES.astype(np.float64)}, "64"),
        ({"keys": KEYS, "values": VALUES[:, 0]}, "values"),
        ({"keys": KEYS, "values": VALUES.astype(np.int8)}, "scale"),
        ({"keys": KEYS, "values": VALUES[:, :0]}, "values"),
        ({"keys": KEYS, "values": VALUES, "scale": np.ones(5, np.float16)}, "scale"),
    ],
)
@pytest.mark.parametrize("write", KINDS[:2], ids=["safetensors", "npy"])
def test_other_tensors_are_refused(
    tmp_path: Path, write: Callable[..., str], arrays: dict[str, Array], message: str
) -> None:
    file = write(tmp_path, **arrays)
    with pytest.raises(InvalidInput) as caught:
        source_of(tmp_path)
    assert caught.value.message.startswith(file)
    assert message in caught.value.message


def test_npy_rows_in_another_order_are_refused_with_the_remedy(tmp_path: Path) -> None:
    write_npy(tmp_path, keys=KEYS, values=np.asfortranarray(VALUES))
    with pytest.raises(InvalidInput, match=r"tables/t\.npy: .*save numpy\.ascontiguousarray"):
        source_of(tmp_path)


def test_npy_numbers_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    write_npy(tmp_path, keys=KEYS.astype(">i8"), values=VALUES.astype(">f4"))
    keys, values = rows_of(source_of(tmp_path))
    assert np.array_equal(keys.view(np.int64), KEYS)
    assert np.array_equal(values, VALUES)


@pytest.mark.parametrize("write", KINDS[:2], ids=["safetensors", "npy"])
def test_a_file_that_is_cut_short_is_refused_when_it_is_opened(
    tmp_path: Path, write: Callable[..., str]
) -> None:
    path = tmp_path / write(tmp_path, keys=KEYS, values=VALUES)
    whole = path.read_bytes()
    for size in (0, 7, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match=r"^tables/t\."):
            source_of(tmp_path)


def test_a_file_that_is_cut_short_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / write_npy(tmp_path, keys=KEYS, values=VALUES)
    source = source_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InvalidInput, match=r"tables/t\.npy: the file ends before row 5"):
        rows_of(source)


def test_parquet_rows_of_different_sizes_are_refused_by_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = import_module("pyarrow.parquet")
    path = folder(tmp_path) / "t.parquet"

    def write(rows: list[list[float | None] | None], keys: list[int | None]) -> None:
        values = pa.array(rows, pa.list_(pa.float32()))
        parquet.write_table(pa.table({"key": pa.array(keys, pa.int64()), "values": values}), path)

    for rows, keys, message in (
        ([[1, 2], [3]], [1, 2], "row 1: found 1 numbers; expected 2, as in the first row"),
        ([[1, 2], None], [1, 2], "row 1: values is null"),
        ([[1, 2], [3, None]], [1, 2], "row 1: a number is null"),
        ([[1, 2], [3, 4]], [1, None], "row 1: key is null"),
    ):
        write(rows, keys)  # type: ignore[arg-type]  # to be refused, or a stand-in
        with pytest.raises(InvalidInput) as caught:
            rows_of(source_of(tmp_path))
        assert caught.value.message == f"tables/t.parquet: {message}"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_what_is_no_parquet_or_arrow_file_is_refused(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    (folder(tmp_path) / f"t{suffix}").write_bytes(b"PAR1 no such thing")
    with pytest.raises(InvalidInput, match=rf"tables/t\{suffix}: no table in Parquet"):
        source_of(tmp_path)


def test_other_columns_are_refused_with_those_that_are_expected(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    for table in (
        pa.table({"id": KEYS}),
        pa.table({"key": KEYS, "values": VALUES[:, 0]}),
        arrow_table(keys=KEYS.astype(np.int32), values=VALUES),
        arrow_table(keys=KEYS, values=VALUES.astype(np.float64)),
        arrow_table(keys=KEYS, values=VALUES, other=KEYS),
    ):
        import_module("pyarrow.parquet").write_table(table, folder(tmp_path) / "t.parquet")
        with pytest.raises(InvalidInput, match="expected a column key of int64 or uint64") as error:
            source_of(tmp_path)
        assert "; found " in error.value.message


def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder(tmp_path) / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(Unavailable, match="pip install pyarrow"):
        source_of(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_by_row_key_and_column(
    tmp_path: Path, bad: float
) -> None:
    values = VALUES.copy()
    values[3, 1] = bad
    write_npy(tmp_path, keys=KEYS, values=values)
    with pytest.raises(InvalidInput) as caught:
        list(checked_chunks(source_of(tmp_path), "tables/t.npy", "f32"))
    assert caught.value.message.startswith(
        f"tables/t.npy: row 3 (key -9223372036854775808), column 1: found {bad};"
    )


@pytest.mark.parametrize(
    ("row_type", "most", "too_much"),
    [("f16", 65519.0, 65520.0), ("bf16", 3.389e38, 3.4e38), ("f32", 3.4e38, None)],
)
def test_numbers_that_rounding_would_make_infinite_are_refused(
    tmp_path: Path, row_type: Any, most: float, too_much: float | None
) -> None:
    write_npy(tmp_path, values=np.array([[most, -most]], np.float32))
    assert len(list(checked_chunks(source_of(tmp_path), "t", row_type))) == 1
    if too_much is not None:
        write_npy(tmp_path, values=np.array([[most, -too_much]], np.float32))
        with pytest.raises(InvalidInput, match=rf"row 0 .*, column 1: .*rows: {row_type} cannot"):
            list(checked_chunks(source_of(tmp_path), "t", row_type))


def manifest_of(root: Path, claim: TableFile, *paths: str) -> None:
    from anabranch_model_store.hashing import file_sha256
    from anabranch_wire.document_fields import ListedFile

    (root / "model.onnx").write_bytes(b"x")
    listed = tuple(
        ListedFile(path=path, bytes=(root / path).stat().st_size, sha256=file_sha256(root / path))
        for path in ("model.onnx", *paths)
    )
    manifest = Manifest(
        format=1, kind="version", model="m", version=1, producer="p", created=0,
        model_file="model.onnx", tables=(claim,), files=listed,
    )  # fmt: skip
    (root / "manifest.json").write_bytes(encode(manifest))


def claim_of(**changes: Any) -> TableFile:
    said: dict[str, Any] = {
        "name": "any name/at all", "file": "tables/t.npy", "rows": 5, "dim": 3, "dtype": "f32",
        "key_dtype": "int64", **changes,
    }  # fmt: skip
    return TableFile(**said)


def test_a_manifest_names_tables_and_their_files(tmp_path: Path) -> None:
    write_npy(tmp_path, keys=KEYS, values=VALUES)
    manifest_of(tmp_path, claim_of(), "tables/t.npy", "tables/t.keys.npy")
    files = files_of(tmp_path)
    (table,) = declared_tables(files)
    assert table.name == "any name/at all"
    assert table.files(files) == ("tables/t.npy", "tables/t.keys.npy")
    assert open_table_file(files, table).rows == 5


def test_parts_that_the_manifest_does_not_list_do_not_count(tmp_path: Path) -> None:
    write_npy(tmp_path, keys=KEYS, values=VALUES)
    manifest_of(tmp_path, claim_of(), "tables/t.npy")
    assert source_of(tmp_path).key_dtype is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 6}, "says rows 6 of table 'any name/at all', the file has 5"),
        ({"dim": 4}, "says dim 4 "),
        ({"dtype": "f16"}, "says dtype f16 "),
        ({"key_dtype": "uint64"}, "says key_dtype uint64 "),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    write_npy(tmp_path, keys=KEYS, values=VALUES)
    manifest_of(tmp_path, claim_of(**change), "tables/t.npy", "tables/t.keys.npy")
    with pytest.raises(InvalidInput) as caught:
        source_of(tmp_path)
    assert caught.value.message.startswith("tables/t.npy: the manifest ")
    assert words in caught.value.message


def test_without_a_manifest_files_give_their_names(tmp_path: Path) -> None:
    write_npy(tmp_path, keys=KEYS, values=VALUES)
    save_file({"keys": KEYS, "values": VALUES}, folder(tmp_path) / "user.emb.safetensors")
    (folder(tmp_path) / "notes.txt").write_text("of no kind that is read")
    names = {table.name: table.file for table in declared_tables(files_of(tmp_path))}
    assert names == {"t": "tables/t.npy", "user.emb": "tables/user.emb.safetensors"}


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    write_npy(tmp_path, values=VALUES)
    write_safetensors(tmp_path, values=VALUES)
    with pytest.raises(InvalidInput, match=r"tables/t\.npy is table 't' already"):
        declared_tables(files_of(tmp_path))


def test_a_suffix_that_no_reader_knows_is_refused(tmp_path: Path) -> None:
    (folder(tmp_path) / "t.csv").write_text("1,2")
    manifest_of(tmp_path, claim_of(file="tables/t.csv"), "tables/t.csv")
    with pytest.raises(InvalidInput, match=r"tables/t\.csv: no kind of table file"):
        source_of(tmp_path)


def test_a_file_that_is_gone_is_not_found(tmp_path: Path) -> None:
    write_npy(tmp_path, keys=KEYS, values=VALUES)
    files = files_of(tmp_path)
    (table,) = declared_tables(files)
    (tmp_path / "tables" / "t.npy").unlink()
    with pytest.raises(NotFound):
        open_table_file(files, table)
