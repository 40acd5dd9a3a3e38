"""Item tables: written from Parquet by the loader, read by workers."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.item_tables import check_item_table, import_item_table
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_runtime.ranking.item_keys import hash_strings
from anabranch_runtime.ranking.item_table import ItemTable
from anabranch_runtime.ranking.plans import ItemTablePlan, SequencePlan
from anabranch_runtime.ranking.requests import ArrayColumn
from anabranch_testing.lengths import length
from anabranch_testing.mutations import mutated
from anabranch_wire.documents import convert
from anabranch_wire.errors import AnabranchError, Corrupt, InvalidInput, Unavailable
from anabranch_wire.names import ModelName
from anabranch_wire.snapshots import Snapshot

pa: Any = import_module("pyarrow")
pq: Any = import_module("pyarrow.parquet")

FILE = "items/0000.parquet"
HASHED = {"function": "xxh64", "num_buckets": 100}
FEATURES: Sequence[Mapping[str, object]] = (
    {"name": "price", "type": "float32"},
    {"name": "author", "type": "int64"},
    {"name": "brand", "type": "string", "hash": HASHED},
    {"name": "image", "type": "float32", "shape": [2, 2]},
    {"name": "clicks", "type": "int64", "ragged": {"max_length": 9}},
    {"name": "words", "type": "string", "ragged": {"max_length": 9}, "hash": HASHED},
    {
        "name": "tags",
        "type": "string",
        "ragged": {"max_length": 9},
        "hash": HASHED,
        "weights": True,
    },
    {"name": "topics", "type": "int64", "ragged": {"max_length": 9}, "weights": True},
)
KINDS: Mapping[str, Any] = {
    "price": pa.float32(),
    "author": pa.int64(),
    "brand": pa.string(),
    "image": pa.list_(pa.float32(), 4),
    "clicks": pa.list_(pa.int64()),
    "words": pa.list_(pa.string()),
    "tags": pa.list_(pa.struct([("ids", pa.string()), ("weights", pa.float32())])),
    "topics": pa.list_(pa.struct([("weights", pa.float32()), ("ids", pa.int64())])),
}


def meaning_of(
    names: Sequence[str] = tuple(KINDS),
    key: str = "int64",
    columns: Mapping[str, str] | None = None,
) -> ModelMeaning:
    features = [{"name": "item", "side": "candidate", "type": key}]
    if key == "string":
        features[0]["hash"] = HASHED  # type: ignore[assignment]  # plain data
    features += [{"side": "candidate", **one} for one in FEATURES if one["name"] in names]  # type: ignore[dict-item]  # plain data
    return convert(
        {
            "features": features,
            "item_tables": {
                "items": {
                    "file": FILE,
                    "key": "id",
                    "columns": columns or {name: name for name in names},
                }
            },
            "ranking": {"id": "item", "score": {"output": "ctr"}, "item_table": "items"},
        },
        ModelMeaning,
        "model.yaml",
    )


class Version:
    """A version folder with an item table, and the cache that it goes into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = ItemCache(root / "cache", 1 << 30)

    def write(self, columns: Mapping[str, Any], row_group: int = 1 << 20) -> VersionFiles:
        path = self.root / "1" / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(columns)), path, row_group_size=row_group)
        return self.files()

    def files(self) -> VersionFiles:
        return verify_version(self.root / "1", Snapshot(ModelName("m"), 1))

    def plan(self, meaning: ModelMeaning, files: VersionFiles) -> ItemTablePlan:
        plan = import_item_table(meaning, files, self.cache)
        assert plan is not None
        return plan

    def table(self, meaning: ModelMeaning, files: VersionFiles) -> ItemTable:
        table = ItemTable.open(self.plan(meaning, files))
        table.verify()
        return table


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path)


def strings(values: Sequence[str]) -> ArrayColumn:
    texts = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return ArrayColumn(np.frombuffer(b"".join(texts), np.uint8), offsets)


def integers(values: Sequence[int]) -> ArrayColumn:
    return ArrayColumn(np.array(values, np.int64))


def rows_of(column: ArrayColumn, width: int = 1) -> list[Any]:
    """A column as plain rows, as Arrow would show them; None where they are missing."""
    values: list[Any] = column.values.tolist()
    if column.offsets is not None:
        data = column.values.tobytes()
        bounds = column.offsets.tolist()
        values = [data[a:b].decode() for a, b in pairwise(bounds)]
    if column.weights is not None:
        values = [
            {"ids": one, "weights": weight}
            for one, weight in zip(values, column.weights.tolist(), strict=True)
        ]
    if column.lengths is not None:
        ends = np.cumsum(column.lengths).tolist()
        rows: list[Any] = [
            values[end - n : end] for end, n in zip(ends, column.lengths.tolist(), strict=True)
        ]
        assert sum(column.lengths.tolist()) == len(values)
    elif width > 1:
        rows = [values[at : at + width] for at in range(0, len(values), width)]
    else:
        rows = values
    if column.missing is None:
        return rows
    assert column.missing.any()
    for row, missing in zip(rows, column.missing.tolist(), strict=True):
        assert not missing or row in (0, "", []) or row == [0] * width
    return [
        None if missing else row for row, missing in zip(rows, column.missing.tolist(), strict=True)
    ]


TEXT = st.text(max_size=12)
NUMBER = st.floats(-1e6, 1e6, width=32)
INTEGER = st.integers(-(2**63), 2**63 - 1)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "price": NUMBER,
    "author": INTEGER,
    "brand": TEXT,
    "image": st.lists(NUMBER, min_size=4, max_size=4),
    "clicks": st.lists(INTEGER, max_size=5),
    "words": st.lists(TEXT, max_size=4),
    "tags": st.lists(st.fixed_dictionaries({"ids": TEXT, "weights": NUMBER}), max_size=4),
    "topics": st.lists(st.fixed_dictionaries({"ids": INTEGER, "weights": NUMBER}), max_size=4),
}


@settings(
    max_examples=length(25, 500),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), key=st.sampled_from(["int64", "string"]))
def test_every_row_is_found_as_it_was_written(
    version: Version, data: st.DataObject, key: str
) -> None:
    ids: list[Any] = data.draw(
        st.lists(INTEGER if key == "int64" else TEXT, unique=True, max_size=30)
    )
    drawn = {
        name: data.draw(
            st.lists(st.none() | VALUES[name], min_size=len(ids), max_size=len(ids)), name
        )
        for name in KINDS
    }
    columns = {name: pa.array(drawn[name], kind) for name, kind in KINDS.items()}
    columns["id"] = pa.array(ids, pa.int64() if key == "int64" else pa.string())
    files = version.write(columns, row_group=7)
    table = version.table(meaning_of(key=key), files)
    order: list[Any] = data.draw(st.permutations(ids))
    absent: list[Any] = [
        one
        for one in ([77, -1, 2**62] if key == "int64" else ["", "no", "x" * 40])
        if one not in ids
    ]
    asked = [*order, *absent, *order[:3]]
    rows = table.find(integers(asked) if key == "int64" else strings(asked))
    assert table.rows == len(ids)
    assert (rows < 0).tolist() == [one not in ids for one in asked]
    for name in KINDS:
        place = {one: row for one, row in zip(ids, drawn[name], strict=True)}
        expected = [place.get(one) for one in asked]
        found = rows_of(table.take(name, rows), 4 if name == "image" else 1)
        assert found == expected, name


def test_nothing_is_found_in_an_empty_table(version: Version) -> None:
    columns = {name: pa.array([], kind) for name, kind in KINDS.items()}
    table = version.table(meaning_of(), version.write({"id": pa.array([], pa.int64()), **columns}))
    rows = table.find(integers([1, 2]))
    assert rows.tolist() == [-1, -1]
    for name in KINDS:
        assert rows_of(table.take(name, rows), 4 if name == "image" else 1) == [None, None]
        assert rows_of(table.take(name, rows[:0]), 4 if name == "image" else 1) == []


def test_missing_ids_have_no_row(version: Version) -> None:
    files = version.write({"id": [5, 0], "price": pa.array([1.0, 2.0], pa.float32())})
    table = version.table(meaning_of(["price"]), files)
    ids = ArrayColumn(np.array([0, 5]), missing=np.array([1, 0], np.uint8))
    assert (table.find(ids) >= 0).tolist() == [False, True]
    with pytest.raises(ValueError, match="not of type int64"):
        table.find(strings(["a"]))


def test_other_types_of_the_same_numbers_are_taken(version: Version) -> None:
    columns = {
        "id": pa.array([1, 2], pa.uint16()),
        "price": pa.array([1.5, 0.1], pa.float64()),
        "author": pa.array([3, 4], pa.int8()),
        "brand": pa.array(["a", "b"], pa.string()).dictionary_encode(),
        "image": pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.large_list(pa.int32())),
        "clicks": pa.array([[1], []], pa.list_(pa.int32())),
    }
    names = [name for name in columns if name != "id"]
    table = version.table(meaning_of(names), version.write(columns))
    rows = table.find(integers([2, 1]))
    assert table.take("price", rows).values.tolist() == [np.float32(0.1), 1.5]
    assert table.take("author", rows).values.tolist() == [4, 3]
    assert rows_of(table.take("brand", rows)) == ["b", "a"]
    assert rows_of(table.take("image", rows), 4) == [[5, 6, 7, 8], [1, 2, 3, 4]]
    assert rows_of(table.take("clicks", rows)) == [[], [1]]


@pytest.mark.parametrize(
    ("feature", "column", "text"),
    [
        ("price", pa.array(["1"]), "column 'price' is string; feature 'price' expects numbers"),
        ("price", pa.array([[1.0]]), "feature 'price' expects numbers"),
        ("author", pa.array([1.0]), "column 'author' is double; feature 'author' expects integers"),
        ("author", pa.array([True]), "is bool"),
        ("author", pa.array([2**63], pa.uint64()), "column 'author': beyond 64 bits"),
        ("brand", pa.array([1]), "feature 'brand' expects strings"),
        ("brand", pa.array([b"a"]), "is binary"),
        ("image", pa.array([[1.0] * 3], pa.list_(pa.float32(), 3)), "expects lists of 4 numbers"),
        ("image", pa.array([[1.0] * 3]), "column 'image', row 0: 3 values; expected 4"),
        ("image", pa.array([[1.0, 2, 3, None]]), "row 0: a value in the list is null"),
        ("clicks", pa.array([1]), "feature 'clicks' expects lists of integers"),
        ("clicks", pa.array([[1, None]]), "column 'clicks', row 0: a value in the list is null"),
        ("words", pa.array([["a", None]]), "column 'words', row 0: a value in the list is null"),
        ("tags", pa.array([["a"]]), "expects lists of struct<ids, weights>, with strings"),
        (
            "tags",
            pa.array([[{"ids": "a", "weights": None}]], KINDS["tags"]),
            "a value in the list is null",
        ),
        ("tags", pa.array([[{"ids": "a"}]]), "expects lists of struct<ids, weights>"),
        ("price", pa.array([1e300]), "column 'price', row 0: 1e+300 is beyond float32"),
    ],
)
def test_a_column_that_cannot_feed_its_feature_is_refused(
    version: Version, feature: str, column: Any, text: str
) -> None:
    files = version.write({"id": [1], feature: column})
    with pytest.raises(InvalidInput) as caught:
        version.plan(meaning_of([feature]), files)
    assert caught.value.message.startswith(FILE)
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("ids", "key", "text"),
    [
        ([4, 9, 7, 9], "int64", "column 'id': id 9 is there twice, in rows 1 and 3"),
        (["a", "b", "a"], "string", "column 'id': id 'a' is there twice, in rows 0 and 2"),
        ([1, None], "int64", "column 'id', row 1: the id is null"),
        (["a", None], "string", "column 'id', row 1: the id is null"),
        (["x" * 1025], "string", "row 0: an id of 1025 bytes; expected at most 1024"),
        (["a"], "int64", "column 'id' is string; feature 'item' expects integers"),
        ([1], "string", "column 'id' is int64; feature 'item' expects strings"),
    ],
)
def test_ids_are_there_once_and_of_the_type_of_the_id_feature(
    version: Version, ids: list[Any], key: str, text: str
) -> None:
    files = version.write({"id": ids, "price": [1.0] * len(ids)})
    with pytest.raises(InvalidInput) as caught:
        version.plan(meaning_of(["price"], key), files)
    assert caught.value.message.startswith(FILE)
    assert text in caught.value.message


def test_a_column_that_is_not_there_is_named(version: Version) -> None:
    files = version.write({"id": [1], "cost": [1.0]})
    with pytest.raises(InvalidInput, match="no column 'price'; the file has 'id', 'cost'"):
        check_item_table(meaning_of(["price"]), files)
    check_item_table(meaning_of(["price"], columns={"price": "cost"}), files)


def test_the_id_cannot_come_from_the_table(version: Version) -> None:
    files = version.write({"id": [1]})
    with pytest.raises(InvalidInput, match="'item' is the id by which rows are found"):
        check_item_table(meaning_of([], columns={"item": "id"}), files)


def sequences_of(
    sequences: Mapping[str, Mapping[str, object]], ids: str = "int64", columns: str = "price"
) -> ModelMeaning:
    """A meaning whose table fills a price of candidates, and sequences of users."""
    hashed = {"hash": HASHED} if ids == "string" else {}
    ragged = {"ragged": {"max_length": 9, "keep": "last", "pad_to": 9}, "side": "user"}
    return convert(
        {
            "features": [
                {"name": "item", "side": "candidate", "type": "int64"},
                {"name": "price", "side": "candidate", "type": "float32"},
                {"name": "recent", "type": ids, **hashed, **ragged},
                {"name": "prices", "type": "float32", **ragged},
                {"name": "again", "type": "float32", **ragged},
                {"name": "brands", "type": "string", "hash": HASHED, **ragged},
                {"name": "more", "type": "string", "hash": HASHED, **ragged},
            ],
            "item_tables": {
                "items": {
                    "file": FILE,
                    "key": "id",
                    "columns": {"price": columns},
                    "sequences": sequences,
                }
            },
            "ranking": {"id": "item", "score": {"output": "ctr"}, "item_table": "items"},
        },
        ModelMeaning,
        "model.yaml",
    )


def test_sequences_of_users_have_columns_each_of_which_is_kept_once(version: Version) -> None:
    meaning = sequences_of(
        {
            "prices": {"ids": "recent", "column": "price", "missing": 2},
            "brands": {"ids": "recent", "column": "brand", "missing": ""},
            "more": {"ids": "recent", "column": "brand"},
        }
    )
    files = version.write({"id": [4, 5], "price": [1.0, None], "brand": ["a", None]})
    plan = version.plan(meaning, files)
    assert plan.columns == {"price": "price"}
    assert plan.sequences == (
        SequencePlan("brands", "recent", "brands", ""),
        SequencePlan("more", "recent", "brands", None),
        SequencePlan("prices", "recent", "price", 2.0),
    )
    assert plan.bytes == Path(plan.path).stat().st_size > 0
    table = ItemTable.open(plan)
    assert sorted(table.header.features) == ["brands", "price"]
    assert rows_of(table.take("brands", table.find(integers([5, 4])))) == [None, "a"]


def test_ids_of_sequences_are_of_the_type_of_the_table(version: Version) -> None:
    files = version.write({"id": [1], "price": [1.0]})
    meaning = sequences_of({"prices": {"ids": "recent", "column": "price"}}, "string")
    with pytest.raises(InvalidInput) as caught:
        check_item_table(meaning, files)
    assert caught.value.message == (
        "model.yaml: item_tables: sequence 'prices': its ids, 'recent', are string; those of the "
        "table are int64"
    )


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("cost", "no column 'cost'; the file has 'id', 'price', 'lists'"),
        ("lists", "column 'lists' is list<element: double>; feature 'prices' expects numbers"),
    ],
)
def test_sequences_are_filled_by_columns_of_one_value_an_item(
    version: Version, column: str, text: str
) -> None:
    files = version.write({"id": [1], "price": [1.0], "lists": [[1.0]]})
    with pytest.raises(InvalidInput) as caught:
        check_item_table(sequences_of({"prices": {"ids": "recent", "column": column}}), files)
    assert text in caught.value.message


def test_what_is_no_parquet_file_is_refused(version: Version) -> None:
    version.write({"id": [1], "price": [1.0]})
    path = version.root / "1" / FILE
    data = path.read_bytes()
    for damaged in (b"", b"PAR1", data[: len(data) // 2], b"x" * 100):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match=r"items/0000\.parquet: no Parquet file"):
            version.plan(meaning_of(["price"]), version.files())


@pytest.mark.soak
def test_damaged_parquet_files_are_refused_or_read(version: Version) -> None:
    filled(version)
    path = version.root / "1" / FILE
    seed = path.read_bytes()
    for data in mutated([seed], [b"PAR1", b"\0" * 8, b"\xff" * 8], length(60, 3000)):
        path.write_bytes(data)
        try:
            version.table(meaning_of(), version.files())
        except InvalidInput as error:
            message = error.message
        else:
            message = FILE
        assert message.startswith(FILE)


def test_ids_of_one_hash_are_told_apart(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    real = hash_strings

    def clashing(column: ArrayColumn, seed: int, longest: int) -> Any:
        hashes = real(column, seed, longest)
        return np.zeros_like(hashes) if seed == 0 else hashes

    monkeypatch.setattr("anabranch_model_store.item_order.hash_strings", clashing)
    files = version.write({"id": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]})
    table = version.table(meaning_of(["price"], "string"), files)
    assert table.header.seed == 1
    assert table.take("price", table.find(strings(["c", "a"]))).values.tolist() == [3.0, 1.0]


def test_the_same_file_and_features_are_imported_once(version: Version) -> None:
    files = version.write({"id": [1], "price": [1.0], "cost": [2.0]})
    first = version.plan(meaning_of(["price"]), files)
    made = Path(first.path).stat().st_mtime_ns, Path(first.path).stat().st_ino
    again = version.plan(meaning_of(["price"]), files)
    assert again == first
    assert Path(again.path).stat().st_ino == made[1]
    other = version.plan(meaning_of(["price"], columns={"price": "cost"}), files)
    assert other.path != first.path
    assert [one.name for one in Path(first.path).parent.iterdir() if one.name.startswith(".")] == []


def filled(version: Version) -> Path:
    columns = {
        name: pa.array([None, *[row] * 3], kind)
        for (name, kind), row in zip(
            KINDS.items(),
            (1.5, 7, "acme", [1, 2, 3, 4], [5, 6], ["a", "bc"],
             [{"ids": "t", "weights": 0.5}], [{"ids": 3, "weights": 2.0}]),
            strict=True,
        )
    }  # fmt: skip
    columns["id"] = pa.array([4, 5, 6, 7])
    return Path(version.plan(meaning_of(), version.write(columns)).path)


def contents(table: ItemTable) -> list[list[Any]]:
    rows = table.find(integers([4, 5, 6, 7, 8]))
    return [rows_of(table.take(n, rows), 4 if n == "image" else 1) for n in KINDS]


def test_a_file_that_was_cut_short_is_corrupt(version: Version) -> None:
    path = filled(version)
    data = path.read_bytes()
    for size in range(0, len(data), 97):
        path.write_bytes(data[:size])
        with pytest.raises(Corrupt, match=f"item table {path.name}"):
            ItemTable(path).verify()


def test_no_flipped_bit_changes_what_is_read(version: Version) -> None:
    path = filled(version)
    data = path.read_bytes()
    expected = contents(ItemTable(path))
    messages: list[str] = []
    for at in range(0, len(data), length(7, 1)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            table = ItemTable(path)
            table.verify()
        except AnabranchError as error:
            messages.append(error.message)
        else:  # padding
            assert contents(table) == expected
    assert len(messages) > len(data) // length(28, 4)
    assert all(path.name in message for message in messages)


@pytest.mark.parametrize(("column", "part"), [("price", "values"), ("words", "text")])
def test_a_damaged_part_is_named(version: Version, column: str, part: str) -> None:
    path = filled(version)
    columns = ItemTable(path)._columns[f"feature.{column}"]
    wanted = dict(columns.parts())[part].tobytes()
    data = bytearray(path.read_bytes())
    data[data.index(wanted) + len(wanted) - 1] ^= 8
    path.write_bytes(data)
    with pytest.raises(Corrupt, match=f"column 'feature.{column}', {part}: checksum differs"):
        ItemTable(path).verify()


def test_a_damaged_cache_file_is_made_anew(version: Version) -> None:
    path = filled(version)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    assert filled(version) == path
    ItemTable(path).verify()


def test_without_pyarrow_the_remedy_is_named(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(version)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match=r"pip install 'anabranch\[parquet\]'"):
        ItemTable(path)
    with pytest.raises(Unavailable, match=r"pip install 'anabranch\[parquet\]'"):
        import_item_table(meaning_of(), version.files(), version.cache)


_IMPORT = """
import json, sys, tracemalloc
from pathlib import Path
import pyarrow as pa
import msgspec
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.item_tables import import_item_table
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.version_files import verify_version
from anabranch_wire.snapshots import Snapshot
root, meaning = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=ModelMeaning)
files = verify_version(root / "1", Snapshot("m", 1))
pa.array([1]).to_numpy()  # pyarrow imports pandas here, where there is one
tracemalloc.start()
plan = import_item_table(meaning, files, ItemCache(root / "cache", 1 << 30))
print(json.dumps({
    "path": plan.path,
    "numpy": tracemalloc.get_traced_memory()[1],
    "arrow": pa.default_memory_pool().max_memory(),
}))
"""


def test_importing_keeps_little_in_memory(version: Version) -> None:
    items, width = 100_000, 128
    rng = np.random.default_rng(1)
    values = rng.random(items * width).astype(np.float32)
    words = [f"some words of item {at}, and some more of them" for at in range(items * 4)]
    version.write(
        {
            "id": np.arange(items),
            "image": pa.FixedSizeListArray.from_arrays(pa.array(values), width),
            "words": pa.ListArray.from_arrays(np.arange(items + 1, dtype=np.int32) * 4, words),
        },
        row_group=10_000,
    )
    plain = msgspec.to_builtins(meaning_of(["image", "words"]))
    plain["features"][1]["shape"] = [width]
    run = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(version.root), json.dumps(plain)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    path = Path(found["path"])
    assert path.stat().st_size > 70_000_000
    # 48 bytes an item, and pieces of 1 MiB in several forms at a time.
    assert found["numpy"] < items * 64 + (40 << 20)
    assert found["arrow"] < 40 << 20
    table = ItemTable(path)
    table.verify()
    rows = table.find(integers([99_999]))
    assert rows_of(table.take("words", rows)) == [words[-4:]]
    assert table.take("image", rows).values.tolist() == values[-width:].tolist()
