"""Differences of snapshots against plain dicts of rows, over every kind of table file."""

import hashlib
import math
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from anabranch_model_store.differences import row_differences
from anabranch_model_store.differences.remote_models import remote_model
from anabranch_model_store.differences.snapshot_contents import open_snapshot
from anabranch_model_store.differences.snapshot_differences import (
    SnapshotDifference,
    TableDifference,
    WeightDifference,
    compare_snapshots,
)
from anabranch_model_store.differences.snapshot_places import model_place, split_place
from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_model_store.sources.remote_folders import RemoteFolder
from anabranch_publish import publish_version
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.store import SegmentBuilder
from anabranch_testing.graphs import write_graph
from anabranch_wire import delta as wire
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound, Unavailable

GRAPH: Final = """
g (float[N, 2] x, int64[N] id) => (float[N, 1] y)
{ looked = Gather(items, id) all = Concat <axis: int = 1> (x, looked) m = MatMul(all, w)
  y = Add(m, b) }
"""
Array = NDArray[Any]
Rows = Mapping[int, tuple[float, ...]]


@dataclass
class Change:
    """What a delta has of one table, and of weights."""

    upserts: Rows = field(default_factory=dict)
    deletes: tuple[int, ...] = ()
    dense: dict[str, Array] = field(default_factory=dict)
    table: str = "emb"
    replaces_from: int | None = None


def weights(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shapes = {"items": (6, 3), "w": (5, 1), "b": (1,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_version(folder: Path, arrays: Mapping[str, Array], yaml: str = "") -> Path:
    path = write_graph(folder, GRAPH)
    model = onnx.load(path)
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    (folder / "model.yaml").write_text(yaml)
    (folder / "tables").mkdir()
    return folder


def write_table(folder: Path, rows: Rows, form: str, name: str = "emb") -> None:
    """Write rows in the order of the mapping."""
    keys = np.array(list(rows), np.int64)
    values = np.array(list(rows.values()), np.float32).reshape(len(rows), -1)
    path = folder / "tables" / name
    if form == "npy":
        np.save(f"{path}.npy", values)
        np.save(f"{path}.keys.npy", keys)
    elif form == "seg":
        with SegmentBuilder(folder / "tables", f"{name}.seg") as builder:
            one = builder.table(name, values.shape[1], rows=len(keys))
            one.add(keys.view(np.uint64), values)
            builder.finish()
    else:
        kind = np.float16 if form == "f16" else np.float32
        save_file({"keys": keys, "values": values.astype(kind)}, f"{path}.safetensors")


def write_delta(model: Path, version: int, sequence: int, change: Change) -> None:
    attempt = f"{sequence:016x}"
    folder = model / str(version) / "deltas" / f"{sequence:08}" / attempt
    folder.mkdir(parents=True)
    tables, dense, files = [], None, []
    if change.upserts or change.deletes:
        dim = len(next(iter(change.upserts.values()), (0.0, 0.0)))
        tensors: dict[str, Array] = {
            "keys": np.array(list(change.upserts), np.int64),
            "values": np.array(list(change.upserts.values()), np.float32).reshape(-1, dim),
        }
        if change.deletes:
            tensors["deleted"] = np.array(change.deletes, np.int64)
        save_file(tensors, folder / "0000.safetensors")
        counts = {"upserts": len(change.upserts), "deletes": len(change.deletes)}
        tables.append(
            wire.TableRows(
                name=change.table,
                file="0000.safetensors",
                dim=dim,
                dtype="f32",
                key_dtype="int64",
                **counts,
            )
        )
        files.append("0000.safetensors")
    if change.dense:
        save_file(change.dense, folder / "dense.safetensors")
        names = tuple(change.dense)
        dense = wire.DenseTensors(file="dense.safetensors", tensors=names, complete=False)
        files.append("dense.safetensors")
    listed = tuple(
        ListedFile(
            path=name,
            bytes=(folder / name).stat().st_size,
            sha256=hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        )
        for name in files
    )
    document = wire.Delta(
        format=1,
        kind="delta",
        model=model.name,
        version=version,
        sequence=sequence,
        replaces_from=change.replaces_from or sequence,
        base=wire.Base(identity=f"sha256:{'0' * 64}", previous=sequence - 1),
        attempt=attempt,
        producer="test 1",
        created=1.0,
        tables=tuple(tables),
        dense=dense,
        files=listed,
    )
    (folder.parent / "delta.json").write_bytes(wire.encode(document))


def compared(model: Path, before: str, after: str) -> SnapshotDifference:
    places = [model_place(model, one) for one in (before, after)]
    return compare_snapshots(*[open_snapshot(*place) for place in places])


def table(found: SnapshotDifference, name: str) -> TableDifference:
    return next(one for one in found.tables if one.name == name)


def near(found: TableDifference, added: int, changed: int, removed: int, norm: float) -> bool:
    return (found.added, found.changed, found.removed) == (added, changed, removed) and (
        found.change_norm == pytest.approx(norm, rel=1e-6)
    )


def weight(found: SnapshotDifference, name: str) -> tuple[int, float]:
    one = next(one for one in found.dense if one.name == name)
    assert one.change_norm is not None
    return one.changed, round(one.change_norm, 5)


def plain(before: Rows, after: Rows) -> tuple[int, int, int, float]:
    """What differs, by dicts."""
    both = before.keys() & after.keys()
    changed = [key for key in both if before[key] != after[key]]
    squares = [
        (old - new) ** 2
        for key in changed
        for old, new in zip(before[key], after[key], strict=True)
    ]
    return (
        len(after.keys() - before.keys()),
        len(changed),
        len(before.keys() - after.keys()),
        math.sqrt(sum(squares)),
    )


KEYS = st.sampled_from([0, 1, 2, 3, -1, 7, 2**63 - 1, -(2**63), 2**40])
NUMBERS = st.sampled_from([0.0, 1.0, -2.0, 0.5])
ROWS = st.dictionaries(KEYS, st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=9)
FORMS = st.sampled_from(["npy", "seg", "f16", "safetensors"])


@st.composite
def changes(draw: st.DrawFn) -> Change:
    upserts = draw(st.dictionaries(KEYS, st.tuples(NUMBERS, NUMBERS), max_size=4))
    gone = draw(st.lists(KEYS, max_size=3, unique=True))
    return Change(upserts, tuple(key for key in gone if key not in upserts))


def applied(rows: Rows, several: Sequence[Change]) -> Rows:
    state = dict(rows)
    for change in several:
        state = {key: row for key, row in state.items() if key not in change.deletes}
        state |= change.upserts
    return state


@settings(max_examples=60)
@given(
    rows=st.tuples(ROWS, ROWS),
    forms=st.tuples(FORMS, FORMS),
    deltas=st.tuples(st.lists(changes(), max_size=3), st.lists(changes(), max_size=2)),
    data=st.data(),
)
def test_rows_differ_as_those_of_dicts_do(
    rows: tuple[Rows, Rows],
    forms: tuple[str, str],
    deltas: tuple[list[Change], list[Change]],
    data: st.DataObject,
) -> None:
    order = data.draw(st.permutations(list(rows[1])))
    published = [rows[0], {key: rows[1][key] for key in order}]
    places = [(number, delta) for number in (0, 1) for delta in range(len(deltas[number]) + 1)]
    first, second = data.draw(st.sampled_from(places)), data.draw(st.sampled_from(places))
    bytes_each = data.draw(st.sampled_from([1, 64, 1 << 20]))
    root = Path(tempfile.mkdtemp(prefix="differences"))
    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(row_differences, "SHARE_BYTES", bytes_each)
        for number in (0, 1):
            folder = write_version(root / "m" / str(number + 1), weights(1))
            write_table(folder, published[number], forms[number])
            for sequence, change in enumerate(deltas[number], 1):
                write_delta(root / "m", number + 1, sequence, change)
        found = table(
            compared(root / "m", f"{first[0] + 1}+{first[1]}", f"{second[0] + 1}+{second[1]}"),
            "emb",
        )
    finally:
        patch.undo()
        shutil.rmtree(root)
    states = [applied(published[one[0]], deltas[one[0]][: one[1]]) for one in (first, second)]
    assert near(found, *plain(*states)), found


def test_deltas_of_two_versions_may_have_the_same_name(tmp_path: Path) -> None:
    model = tmp_path / "m"
    rows: Rows = {0: (1.0, 1.0), 1: (2.0, 2.0)}
    for number, published in ((1, rows), (2, {**rows, 2: (3.0, 3.0)})):
        write_table(write_version(model / str(number), weights(1)), published, "npy")
    write_delta(model, 1, 1, Change({0: (1.0, 1.0)}))
    write_delta(model, 2, 1, Change({}, (0, 1)))
    assert near(table(compared(model, "1+1", "2+1"), "emb"), 1, 0, 2, 0.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Versions 1 and 2 of a model; two deltas of version 1."""
    model = tmp_path / "m"
    arrays = weights(1)
    folder = write_version(model / "1", arrays, "tables: {emb: {alias: [tags]}}")
    write_table(folder, {5: (1.0, 2.0), 6: (3.0, 4.0)}, "seg")
    items = arrays["items"].copy()
    items[2] += np.float32(3.0)
    folder = write_version(model / "2", arrays | {"items": items, "b": arrays["b"] + 4})
    write_table(folder, {6: (3.0, 4.0), 5: (1.0, 2.0)}, "npy")
    write_table(folder, {1: (1.0,)}, "npy", "more")
    write_delta(
        model, 1, 1, Change({5: (4.0, 6.0), 9: (0.0, 0.0)}, (6,), {"w": arrays["w"] + 1}, "tags")
    )
    write_delta(model, 1, 2, Change({3: (0.0, 0.0, 0.0)}, table="items"))
    return model


def test_tables_of_files_and_of_the_graph_differ(model: Path) -> None:
    found = compared(model, "1", "2")

    assert [one.name for one in found.tables] == ["emb", "items", "more"]
    assert near(table(found, "emb"), 0, 0, 0, 0.0)
    assert near(table(found, "items"), 0, 1, 0, math.sqrt(27))
    assert near(table(found, "more"), 1, 0, 0, 0.0)
    assert [one.name for one in found.dense] == ["b", "w"]
    assert weight(found, "b") == (1, 4.0)
    assert weight(found, "w") == (0, 0.0)


def test_deltas_change_rows_by_alias_rows_of_the_graph_and_weights(model: Path) -> None:
    found = compared(model, "1", "1+2")

    assert near(table(found, "emb"), 1, 1, 1, 5.0)
    norm = float(np.linalg.norm(weights(1)["items"][3]))
    assert near(table(found, "items"), 0, 1, 0, norm)
    assert weight(found, "b") == (0, 0.0)
    assert weight(found, "w") == (5, round(math.sqrt(5), 5))
    assert near(table(compared(model, "1+2", "1+2"), "emb"), 0, 0, 0, 0.0)


def test_a_delta_that_replaces_others_is_enough(model: Path) -> None:
    cumulative = Change({5: (0.0, 0.0), 9: (1.0, 1.0)}, (6,), replaces_from=1)
    shutil.rmtree(model / "1" / "deltas" / "00000001")
    write_delta(model, 1, 3, cumulative)

    found = compared(model, "1", "1+3")

    assert near(table(found, "emb"), 1, 1, 1, math.sqrt(5))


def test_a_table_that_a_delta_brings_whole_counts_by_rows(model: Path) -> None:
    items = weights(1)["items"].copy()
    items[4] = 0
    write_delta(model, 1, 3, Change(dense={"items": items}))

    found = table(compared(model, "1+1", "1+3"), "items")

    assert (found.added, found.changed, found.removed) == (0, 1, 0)


def test_rows_of_other_lengths_have_all_changed(model: Path) -> None:
    folder = write_version(model / "3", weights(1) | {"w": np.zeros((5, 2), np.float32)})
    write_table(folder, {5: (1.0,), 8: (2.0,)}, "npy")

    found = compared(model, "1", "3")

    assert table(found, "emb") == TableDifference("emb", 1, 1, 1, None)
    assert found.dense[1] == WeightDifference("w", 10, None)


def test_numbers_that_are_none_are_the_same_as_themselves(model: Path) -> None:
    for version, last in ((3, 1.0), (4, math.inf)):
        folder = write_version(model / str(version), weights(1))
        write_table(folder, {5: (math.nan, math.inf), 6: (1.0, last)}, "npy")

    found = table(compared(model, "3", "4"), "emb")

    assert found == TableDifference("emb", 0, 1, 0, None)


@pytest.mark.parametrize(
    ("before", "after", "kind", "message"),
    [
        ("1", "7", NotFound, "model 'm' has no version 7"),
        ("1+4", "1", NotFound, "has no delta 3, which is needed to come to 1+4"),
        ("1+99999999", "1", NotFound, "has no delta 3, which is needed to come to"),
        ("1", "x", InvalidInput, "snapshot 'x': expected VERSION or VERSION+DELTA"),
    ],
)
def test_what_is_not_there_is_named(
    model: Path, before: str, after: str, kind: type[AnabranchError], message: str
) -> None:
    with pytest.raises(kind) as refused:
        compared(model, before, after)

    assert message in refused.value.message


def test_a_delta_of_a_table_that_the_version_lacks_is_refused(model: Path) -> None:
    write_delta(model, 1, 3, Change({3: (0.0,)}, table="none"))

    with pytest.raises(InvalidInput, match="delta 3: version 1 has no table 'none'"):
        compared(model, "1", "1+3")


def test_snapshots_are_named_by_path(model: Path, tmp_path: Path) -> None:
    assert split_place(f"{model}/1+2") == (str(model), "1+2")
    assert split_place("s3://bucket/m/1/") == ("s3://bucket/m", "1")
    assert split_place("42") == (".", "42")
    with pytest.raises(NotFound, match="no such folder"):
        model_place(tmp_path / "none", "1")
    with pytest.raises(InvalidInput, match="snapshot 'm'"):
        split_place("s3://bucket/m")


def test_versions_optimised_ahead_of_time_have_the_names_of_the_original(tmp_path: Path) -> None:
    arrays = weights(1)
    (tmp_path / "model.yaml").write_text("optimize: {min_table_bytes: 0}")
    write_version(tmp_path / "m" / "1", arrays)
    for name, row in (("items", 2), ("w", 1)):
        arrays[name][row] += np.float32(3.0)
    path = write_version(tmp_path / "exported", arrays) / "model.onnx"
    request = OptimizeRequest(path, tmp_path / "m" / "2", tmp_path / "model.yaml")
    assert optimize_folder(request, OrtModelRunner()).lookups

    found = compared(tmp_path / "m", "1", "2")

    assert [one.name for one in found.tables] == ["items"]
    assert near(found.tables[0], 0, 1, 0, math.sqrt(27))
    assert (weight(found, "b"), weight(found, "w")) == ((0, 0.0), (1, 3.0))


def test_a_model_at_a_url_is_compared(model: Path) -> None:
    url = f"memory://{secrets.token_hex(4)}/models"
    for version in ("1", "2"):
        publish_version(f"{url}/m", model / version / "model.onnx")

    with remote_model(f"{url}/m", {}) as (folder, origin):
        opened = [open_snapshot(*model_place(folder, one), origin) for one in ("1", "2")]
        found = compare_snapshots(*opened)

    assert near(table(found, "items"), 0, 1, 0, math.sqrt(27))
    with pytest.raises(NotFound, match="no such model"), remote_model(f"{url}/none", {}):
        pass


def test_what_the_store_refuses_of_a_model_is_told_where_it_is_missed(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{secrets.token_hex(4)}/models"
    for version in ("1", "2"):
        publish_version(f"{url}/m", model / version / "model.onnx")
    read = RemoteFolder.read

    def refuse(remote: RemoteFolder, path: str, max_bytes: int) -> bytes | None:
        if path == "m/2/manifest.json":
            raise Unavailable(f"{path}: AccessDenied")
        return read(remote, path, max_bytes)

    monkeypatch.setattr(RemoteFolder, "read", refuse)
    told = "no version 2; could not be read: m/2/manifest.json: AccessDenied"
    with remote_model(f"{url}/m", {}) as (folder, origin):
        assert open_snapshot(*model_place(folder, "1"), origin)
    with (
        pytest.raises(Unavailable, match=told),
        remote_model(f"{url}/m", {}) as (folder, origin),
    ):
        open_snapshot(*model_place(folder, "2"), origin)
