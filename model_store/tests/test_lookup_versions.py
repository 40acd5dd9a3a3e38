"""Versions with lookups, from the folder to what a server is told: tables, plan, rows, requests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.version_contents import check_unpublished
from anabranch_model_store.yaml_files import read_deployment
from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.store import Segment, SegmentBuilder
from anabranch_wire.errors import (
    AnabranchError,
    Corrupt,
    InvalidInput,
    TooLarge,
    Unavailable,
    Unsupported,
)
from anabranch_wire.missing import FallbackKey, Refuse, Zeros
from anabranch_wire.names import ModelName
from anabranch_wire.tensors import TensorSpec

GRAPH = """
dense (float[N, 2] x, float[N, 12] emb) => (float[N, 1] p)
<float[14, 1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0}>
{ all = Concat <axis: int = 1> (x, emb) y = MatMul (all, w) p = Sigmoid (y) }
"""
YAML = """
features:
  - {name: user, side: user, type: int64}
  - {name: tags, side: candidate, type: int64, ragged: {max_length: 8}}
tables:
  user_emb: {padding_key: 7}
lookups:
  - {feature: user, table: user_emb, output: {input: emb, columns: [0, 8]}}
  - {feature: tags, table: tag_emb, combiner: mean, output: {input: emb, columns: [8, 12]}}
"""
WEIGHTS = np.arange(1, 15, dtype=np.float32)[:, None]
Tables = Mapping[str, Rows]
Array = NDArray[Any]


def tables(rows: int = 500, seed: int = 1) -> dict[str, Rows]:
    rng = np.random.default_rng(seed)
    return {
        name: Rows(
            rng.choice(np.arange(-(10**6), 10**6), rows, replace=False) * 10**12,
            (rng.standard_normal((rows, dim)) / 30).astype(np.float32),
        )
        for name, dim in (("user_emb", 8), ("tag_emb", 4))
    }


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


class Version:
    """A model folder, its versions, and a cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = root / "models" / "m"
        self.model.mkdir(parents=True)
        self.cache = SegmentCache(root / "cache", 1 << 30)
        self.done: list[tuple[int, int]] = []

    def publish(
        self, yaml: str = YAML, rows: Mapping[str, Rows | Path] | None = None, **more: Any
    ) -> "Version":
        onnx.save(
            onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {GRAPH}'),
            self.root / "model.onnx",
        )
        (self.root / "model.yaml").write_text(yaml)
        publish_version(
            self.model, self.root / "model.onnx", model_yaml=self.root / "model.yaml",
            tables=tables() if rows is None else rows, **more,
        )  # fmt: skip
        return self

    def copied_by_hand(self, yaml: str = YAML) -> Path:
        folder = self.model / "1"
        (folder / "tables").mkdir(parents=True)
        onnx.save(
            onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {GRAPH}'),
            folder / "model.onnx",
        )
        (folder / "model.yaml").write_text(yaml)
        return folder / "tables"

    def prepare(self, runner: OrtModelRunner, number: int = 1, **more: Any) -> PreparedVersion:
        folder = scan_repository(self.root / "models").models[ModelName("m")]
        settings = StoreSettings(
            self.cache, on_bytes=lambda done, total: self.done.append((done, total))
        )
        return prepare_version(
            folder, number, read_deployment(folder.path), runner,
            **{"store": settings, **more},
        )  # fmt: skip

    def refusal(self, runner: OrtModelRunner, kind: type[AnabranchError], **more: Any) -> str:
        with pytest.raises(kind) as caught:
            self.prepare(runner, **more)
        return caught.value.message


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path)


def row_of(rows: Rows, key: int) -> Array:
    at = np.flatnonzero(rows.keys == key)
    return rows.values[at[0]] if len(at) else np.zeros(rows.values.shape[1], np.float32)


def answer(made: Tables, x: Array, users: list[int], tags: list[list[int]]) -> Array:
    """What the model computes, without server or store."""
    lines = []
    for row, (user, bag) in enumerate(zip(users, tags, strict=True)):
        emb = row_of(made["user_emb"], user) if user != 7 else np.zeros(8, np.float32)
        found = [row_of(made["tag_emb"], tag) for tag in bag]
        pooled = np.mean(found, axis=0) if found else np.zeros(4, np.float32)
        lines.append(np.concatenate([x[row], emb, pooled]))
    return np.asarray(1 / (1 + np.exp(-(np.array(lines, np.float32) @ WEIGHTS))), np.float32)


def sample(made: Tables) -> dict[str, Array]:
    """A request of three rows: found and missing keys, a padding key, an empty bag."""
    x = np.array([[0.1, 0.2], [0.0, 0.5], [-1, 0.25]], np.float32)
    users = [int(made["user_emb"].keys[5]), 7, -12345]
    tag = made["tag_emb"].keys
    tags = [[int(tag[0]), int(tag[1]), 99], [], [int(tag[2])]]
    return {
        "x": x,
        "user": np.array(users)[:, None],
        "tags": np.concatenate([np.array(bag, np.int64) for bag in tags]),
        "tags.lengths": np.array([3, 0, 1], np.int32),
        "expected.p": answer(made, x, users, tags),
    }


def warmup(root: Path, arrays: Mapping[str, Array], name: str = "a") -> list[Path]:
    np.savez(root / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # of many types
    return [root / f"{name}.npz"]


def test_a_published_version_is_prepared_with_its_rows(
    version: Version, runner: OrtModelRunner
) -> None:
    prepared = version.publish().prepare(runner)

    store = prepared.store
    assert store is not None
    assert store.segment.parent == version.root / "cache"
    assert store.bytes == store.segment.stat().st_size
    assert store.memory_bytes > store.bytes
    assert [(one.name, one.rows, one.keys) for one in Segment.open(store.segment).tables] == [
        ("user_emb", 500, "hashed"),
        ("tag_emb", 500, "hashed"),
    ]
    assert [(room.arena_rows, room.keys) for room in store.capacities] == [(1024, 1524)] * 2
    assert [room.most_keys for room in store.capacities] == [100_000_000] * 2
    assert [one.padding_key for one in store.plan.tables] == [7, None]
    assert [one.missing for one in store.plan.tables] == [Zeros(), Zeros()]
    assert store.plan.source.file == "model.onnx"
    assert store.inputs == (
        TensorSpec("user", "INT64", (-1, 1)),
        TensorSpec("tags", "INT64", (-1,)),
    )
    assert prepared.model.request_inputs == (TensorSpec("x", "FP32", (-1, 2)), *store.inputs)
    assert prepared.model.rows.independent
    assert prepared.user_inputs == ("user",)
    done, total = version.done[-1]
    assert done == total == 500 * (8 + 32) + 500 * (8 + 16)


def test_made_up_requests_hold_keys_that_are_there_and_some_that_are_not(
    version: Version, runner: OrtModelRunner
) -> None:
    made = tables()
    prepared = version.publish(rows=made).prepare(runner)
    small, large = prepared.examples
    assert set(small) == {"x", "user", "tags", "tags.lengths"}
    assert small["user"].shape == (1, 1)
    assert large["user"].shape == (16, 1)
    found = np.isin(large["user"], made["user_emb"].keys)
    assert found.any()
    assert not found.all()
    assert [set(example) for example in prepared.graph_examples] == [{"x", "emb"}] * 2
    emb = prepared.graph_examples[1]["emb"]
    for row, key in enumerate(large["user"][:, 0]):
        assert np.array_equal(emb[row, :8], row_of(made["user_emb"], key))


def test_requests_that_a_version_brings_are_looked_up_run_and_compared(
    version: Version, runner: OrtModelRunner
) -> None:
    made = tables()
    arrays = sample(made)
    version.publish(rows=made, warmup=warmup(version.root, arrays))
    (example,) = version.prepare(runner).examples
    assert example["tags.lengths"].tolist() == [3, 0, 1]
    arrays["expected.p"] = arrays["expected.p"] + np.float32(0.01)
    version.publish(rows=made, warmup=warmup(version.root, arrays))
    message = version.refusal(runner, InvalidInput, number=2)
    assert message.startswith("warmup/a.npz: output 'p' at [0, 0]: expected ")


def test_requests_may_be_sent_in_every_form(version: Version, runner: OrtModelRunner) -> None:
    made = tables()
    base = sample(made)
    offsets = {**base, "tags.offsets": np.array([0, 3, 3, 4])}
    del offsets["tags.lengths"]
    tag = made["tag_emb"].keys[:2]
    user = int(made["user_emb"].keys[5])
    padded = {
        "x": base["x"][:2],
        "user": np.array([[user]]),  # one user for all rows
        "tags": np.array([tag, tag[::-1]]),
        "expected.p": answer(made, base["x"], [user, user], [list(tag)] * 2),
    }
    request = {
        "inputs": [
            {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 1]},
            {"name": "user", "shape": [1], "datatype": "INT64", "data": [user]},
            {"name": "tags", "shape": [2], "datatype": "INT64", "data": tag.tolist()},
            {"name": "tags.lengths", "shape": [1], "datatype": "INT32", "data": [2]},
        ]
    }
    (version.root / "j.json").write_text(json.dumps(request))
    files = [
        *warmup(version.root, base), *warmup(version.root, offsets, "b"),
        *warmup(version.root, padded, "c"), version.root / "j.json",
    ]  # fmt: skip
    prepared = version.publish(rows=made, warmup=files).prepare(runner)
    assert len(prepared.examples) == 4
    assert np.array_equal(prepared.graph_examples[0]["emb"], prepared.graph_examples[1]["emb"])
    assert prepared.examples[2]["user"].tolist() == [[user], [user]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": None}, "warmup/a.npz: input 'user' is missing"),
        ({"emb": np.zeros((3, 12), np.float32)}, "'emb' is neither an input nor expected.<output>"),
        ({"tags.lengths": None}, "warmup/a.npz: feature 'tags': expected 'tags.lengths' or"),
        ({"tags.lengths": np.array([3, 0, 2])}, "expected lengths that add up to its 4 ids, got 5"),
        ({"tags": np.zeros(4, np.int32)}, "warmup/a.npz: input 'tags': expected datatype INT64"),
        ({"user": np.zeros((2, 1), np.int64)}, "warmup/a.npz: inputs disagree on the number of "),
        ({"user": np.zeros((3, 2), np.int64)}, "warmup/a.npz: input 'user': expected shape"),
        ({"tags": np.zeros(9, np.int64), "tags.lengths": np.array([9, 0, 0])}, "at most 8 ids"),
    ],
)
def test_requests_that_do_not_fit_the_features_are_refused(
    version: Version, runner: OrtModelRunner, change: dict[str, Array | None], words: str
) -> None:
    made = tables()
    arrays = {k: v for k, v in {**sample(made), **change}.items() if v is not None}
    version.publish(rows=made, warmup=warmup(version.root, arrays))
    assert words in version.refusal(runner, InvalidInput)


def test_the_same_tables_are_imported_once(version: Version, runner: OrtModelRunner) -> None:
    first = version.publish().prepare(runner).store
    second = version.publish(YAML + "description: another\n").prepare(runner, 2).store
    other = version.publish(rows=tables(seed=2)).prepare(runner, 3).store
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.segment == second.segment != other.segment
    assert len(list((version.root / "cache").iterdir())) == 2


@pytest.mark.parametrize("row_type", ["f16", "bf16", "int8"])
def test_rows_are_kept_as_model_yaml_says(
    version: Version, runner: OrtModelRunner, row_type: str
) -> None:
    made = tables()
    text = YAML.replace("{padding_key: 7}", f"{{padding_key: 7, rows: {row_type}}}")
    text += "optimize: {parity: {max_abs_diff: 0.02}}\n"
    version.publish(text, made, warmup=warmup(version.root, sample(made)))
    store = version.prepare(runner).store
    assert store is not None
    assert [one.row_type for one in Segment.open(store.segment).tables] == [row_type, "f32"]


def test_what_a_missing_key_means_is_carried_out(version: Version, runner: OrtModelRunner) -> None:
    made = tables()
    known = int(made["user_emb"].keys[3])
    text = YAML.replace("padding_key: 7", f"missing: {{policy: key, key: {known}}}")
    text = text.replace("lookups:", "  tag_emb: {missing: error}\nlookups:")
    prepared = version.publish(text, made).prepare(runner)
    store = prepared.store
    assert store is not None
    assert [one.missing for one in store.plan.tables] == [FallbackKey(key=known), Refuse()]
    # Made-up requests hold no key that would fail them, and the fallback for others.
    assert np.isin(prepared.examples[1]["tags"], made["tag_emb"].keys).all()
    users, emb = prepared.examples[1]["user"][:, 0], prepared.graph_examples[1]["emb"]
    missing = np.flatnonzero(~np.isin(users, made["user_emb"].keys))
    assert len(missing)
    for row in missing:
        assert np.array_equal(emb[row, :8], row_of(made["user_emb"], known))
    version.publish(text, made, warmup=warmup(version.root, sample(made)))
    message = version.refusal(runner, InvalidInput, number=2)
    assert message.startswith("warmup/a.npz: ")
    assert "99" in message


def test_dense_ids_are_row_numbers(version: Version, runner: OrtModelRunner) -> None:
    made = tables()
    made["user_emb"] = Rows(np.arange(500), made["user_emb"].values)
    text = YAML.replace("padding_key: 7", "keys: dense_id, missing: original")
    prepared = version.publish(text, made).prepare(runner)
    assert prepared.store is not None
    assert prepared.store.plan.tables[0].keys == "dense_id"
    assert prepared.examples[1]["user"].max() < 500
    made["user_emb"].keys[17] = 18
    version.publish(text, made)
    message = version.refusal(runner, InvalidInput, number=2)
    assert message.startswith("tables/0000.safetensors: row 17: found key 18; keys: dense_id wants")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("table: tag_emb", "table: tag", "lookups[1]: no file of the version holds table 'tag'"),
        ("padding_key: 7", "missing: original", "tables['user_emb']: missing: original: that is"),
        ("padding_key: 7", "missing: {policy: vector, value: [1]}", "missing.value has 1 numbers"),
        ("padding_key: 7", "capacity: {max_rows: 499}", "max_rows: 499; tables/0000.safetensors"),
        ("[8, 12]", "[8, 11]", "columns 11 to 12 would stay zero"),
    ],
)
def test_a_model_yaml_that_does_not_fit_the_tables_is_refused(
    version: Version, runner: OrtModelRunner, old: str, new: str, words: str
) -> None:
    message = version.publish(YAML.replace(old, new)).refusal(runner, InvalidInput)
    assert words in message
    assert not version.done


def test_rows_that_the_store_cannot_hold_are_refused(
    version: Version, runner: OrtModelRunner
) -> None:
    made = tables()
    made["tag_emb"].values[77, 2] = np.nan
    message = version.publish(rows=made).refusal(runner, InvalidInput)
    assert message.startswith("tables/0001.safetensors: row 77 (key ")
    made = tables()
    made["tag_emb"].keys[9] = made["tag_emb"].keys[4]
    version.publish(rows=made)
    message = version.refusal(runner, InvalidInput, number=2)
    assert message.startswith("tables/0001.safetensors: ")
    assert str(int(made["tag_emb"].keys[4]) % 2**64) in message
    assert not list((version.root / "cache").glob("*.seg"))


def test_a_table_goes_by_its_alias_too(version: Version, runner: OrtModelRunner) -> None:
    text = YAML.replace("{padding_key: 7}", "{padding_key: 7, alias: [users]}")
    text = text.replace("table: user_emb", "table: users")
    store = version.publish(text).prepare(runner).store
    assert store is not None
    assert (store.plan.tables[0].name, store.plan.tables[0].padding_key) == ("user_emb", 7)


def test_tables_that_no_lookup_reads_are_left_alone_and_said(
    version: Version, runner: OrtModelRunner
) -> None:
    made = {**tables(), "spare": tables()["tag_emb"]}
    prepared = version.publish(rows=made).prepare(runner)
    assert prepared.store is not None
    assert len(prepared.store.capacities) == 2
    assert "tables that no lookup reads are left alone: 'spare'" in prepared.notes


def test_files_without_a_manifest_give_tables_their_names(
    version: Version, runner: OrtModelRunner
) -> None:
    made = tables()
    folder = version.copied_by_hand()
    save_file(
        {"keys": made["user_emb"].keys, "values": made["user_emb"].values},
        folder / "user_emb.safetensors",
    )
    np.save(folder / "tag_emb.npy", made["tag_emb"].values)
    np.save(folder / "tag_emb.keys.npy", made["tag_emb"].keys)
    store = version.prepare(runner).store
    assert store is not None
    assert [one.file for one in store.plan.tables] == [
        "tables/user_emb.safetensors",
        "tables/tag_emb.npy",
    ]


def write_segment(folder: Path, name: str, made: Tables) -> Path:
    with SegmentBuilder(folder, name) as builder:
        for table, rows in made.items():
            writing = builder.table(table, rows.values.shape[1], rows=len(rows.keys))
            writing.add(rows.keys, rows.values)
        builder.finish()
    return folder / name


def test_a_segment_is_used_as_it_is(version: Version, runner: OrtModelRunner) -> None:
    made = tables()
    path = write_segment(version.copied_by_hand(), "all.seg", {**made, "spare": made["tag_emb"]})
    before = path.read_bytes()
    warm = version.model / "1" / "warmup"
    warm.mkdir()
    warmup(warm, sample(made))
    prepared = version.prepare(runner)
    assert prepared.store is not None
    assert prepared.store.segment.samefile(path)
    assert path.read_bytes() == before
    assert [room.keys for room in prepared.store.capacities] == [1524] * 3
    assert [table.name for table in prepared.store.plan.tables] == ["user_emb", "tag_emb"]


def test_segments_and_other_files_become_one_segment(
    version: Version, runner: OrtModelRunner
) -> None:
    made = tables()
    folder = version.copied_by_hand()
    write_segment(folder, "users.seg", {"user_emb": made["user_emb"]})
    np.save(folder / "tag_emb.npy", made["tag_emb"].values)
    np.save(folder / "tag_emb.keys.npy", made["tag_emb"].keys)
    warm = version.model / "1" / "warmup"
    warm.mkdir()
    warmup(warm, sample(made))
    store = version.prepare(runner).store
    assert store is not None
    assert [one.name for one in Segment.open(store.segment).tables] == ["user_emb", "tag_emb"]


def test_a_damaged_segment_refuses_the_version(version: Version, runner: OrtModelRunner) -> None:
    path = write_segment(version.copied_by_hand(), "all.seg", tables())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    message = version.refusal(runner, Corrupt)
    assert message.startswith("tables/all.seg: ")
    assert message.endswith("; copy it again")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("padding_key: 7", "keys: dense_id", "tables['user_emb'].keys: dense_id; tables/all.seg"),
        ("padding_key: 7", "rows: f16", "tables['user_emb'].rows: f16; tables/all.seg has f32"),
    ],
)
def test_a_segment_that_model_yaml_wants_otherwise_is_refused(
    version: Version, runner: OrtModelRunner, old: str, new: str, words: str
) -> None:
    text = YAML.replace(old, new) + "optimize: {parity: {}}\n"
    write_segment(version.copied_by_hand(text), "all.seg", tables())
    assert words in version.refusal(runner, InvalidInput)


def test_rows_that_will_not_fit_into_memory_are_refused_before_they_are_read(
    version: Version, runner: OrtModelRunner
) -> None:
    version.publish()
    message = version.refusal(runner, TooLarge, available_bytes=60_000)
    assert "the machine has 60000 left" in message
    assert not version.done


def test_without_a_folder_for_rows_a_version_with_lookups_cannot_be_had(
    version: Version, runner: OrtModelRunner
) -> None:
    assert "no folder" in version.publish().refusal(runner, Unavailable, store=None)


def test_before_it_is_published_a_version_is_checked_as_far_as_names_are_known(
    version: Version,
) -> None:
    def check(folder: Path) -> None:
        check_unpublished(folder, version.model)

    version.publish(check=check)
    with pytest.raises(InvalidInput, match="the graph has no input 'embb', did you mean 'emb'"):
        version.publish(YAML.replace("input: emb", "input: embb"), check=check)
    with pytest.raises(InvalidInput, match=r"lookups\[0\]: no file of the version holds table"):
        version.publish(rows={}, check=check)


def test_what_is_said_of_tables_in_the_graph_stays_refused(
    version: Version, runner: OrtModelRunner
) -> None:
    text = YAML.replace("tables:", "tables:\n  w: {keys: hashed}")
    message = version.publish(text).refusal(runner, Unsupported)
    assert message.endswith("not available in this release: tables['w'].keys: hashed")


def test_single_rows_are_padded_with_their_features(
    version: Version, runner: OrtModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Squeeze takes the rows away where there is one, so that the graph needs two.
    graph = GRAPH.replace(
        "p = Sigmoid (y)",
        "s = Squeeze (y) axis = Constant <value = int64[1] {1}> () u = Unsqueeze (s, axis) "
        "p = Sigmoid (u)",
    )
    monkeypatch.setitem(globals(), "GRAPH", graph)
    made = tables()
    one = {name: array[:1] for name, array in sample(made).items() if name != "tags"}
    one |= {"tags": sample(made)["tags"][:3]}
    version.publish(rows=made, warmup=warmup(version.root, one))
    prepared = version.prepare(runner)
    assert prepared.model.rows.min_rows == 2
    (example,) = prepared.examples
    assert example["tags"].tolist() == one["tags"].tolist() * 2
    assert example["tags.lengths"].tolist() == [3, 3]
    assert example["user"].tolist() == one["user"].tolist() * 2
