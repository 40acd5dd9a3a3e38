"""Golden requests of versions, from the folder to the version that is served or refused."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
import yaml

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.golden.cases import read_cases
from anabranch_model_store.golden.folders import check_golden
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import ModelFolder, VersionFolder
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.version_files import verify_version
from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.graphs import write_graph
from anabranch_testing.lengths import length
from anabranch_testing.mutations import mutated as mutated_bytes
from anabranch_wire.errors import InvalidInput, Mismatch, NotFound
from anabranch_wire.names import ModelName
from anabranch_wire.snapshots import Snapshot

pa: Any = import_module("pyarrow")
pq: Any = import_module("pyarrow.parquet")

Plain = dict[str, Any]

# --- a model whose graph takes everything ------------------------------------------------------

GRAPH = """
ranked (int64[N] country, int64[N] city, int64[N] device, int64[N] age, int64[N, 4] hist,
        int64[N] hist_len, int64[N] item_id, int64[N] brand, int64[N] author_q, int64[N] author_r,
        float[N] price, float[N, 2] image) => (float[N] ctr, float[N, 2] both)
<int64[1] one = {1}, float[2, 1] image_w = {0.01, 0.02}> {
  t1 = Gather <axis: int = 0> (table, country) t2 = Gather <axis: int = 0> (table, city)
  t3 = Gather <axis: int = 0> (table, device) t4 = Gather <axis: int = 0> (table, age)
  h = Gather <axis: int = 0> (table, hist) h1 = ReduceSum <keepdims: int = 0> (h, one)
  n = Cast <to: int = 1> (hist_len) t5 = Gather <axis: int = 0> (table, item_id)
  t6 = Gather <axis: int = 0> (table, brand) t7 = Gather <axis: int = 0> (table, author_q)
  r = Gather <axis: int = 0> (table, author_r) t8 = Add (r, r)
  all = Sum (t1, t2, t3, t4, h1, t5, t6, t7, t8)
  s = ReduceSum <keepdims: int = 0> (all, one) np = Sum (n, price)
  m = MatMul (image, image_w) im = Squeeze (m, one)
  z = Sum (s, np, im) ctr = Sigmoid (z) both = Identity (all)
}
"""
ROWS = 3000
TABLE = (np.random.default_rng(3).standard_normal((ROWS, 2)) / 40).astype(np.float32)

FEATURES: list[Plain] = [
    {
        "name": "country",
        "side": "user",
        "type": "string",
        "hash": {"function": "farmhash_fingerprint64", "num_buckets": 1000},
        "default": "",
    },
    {
        "name": "city",
        "side": "user",
        "type": "string",
        "hash": {"function": "xxh64", "seed": 3, "num_buckets": 900},
    },
    {
        "name": "device",
        "side": "user",
        "type": "string",
        "vocabulary": {"values": ["ios", "android", "web"], "first_id": 1, "unknown": 0},
    },
    {"name": "age", "side": "user", "type": "float32", "bucketize": {"boundaries": [18, 25, 35]}},
    {
        "name": "hist",
        "side": "user",
        "type": "int64",
        "hash": {"function": "xxh64", "seed": 1, "num_buckets": 800},
        "ragged": {
            "max_length": 3,
            "keep": "last",
            "pad_to": 4,
            "padding": 5,
            "lengths_input": "hist_len",
        },
        "default": [1],
    },
    {"name": "item_id", "side": "candidate", "type": "int64"},
    {
        "name": "brand",
        "side": "candidate",
        "type": "string",
        "hash": {"function": "murmur3_x64_128_low", "seed": 5, "num_buckets": 700},
    },
    {
        "name": "author",
        "side": "candidate",
        "type": "int64",
        "multi_hash": {
            "method": "quotient_remainder",
            "num_buckets": 100,
            "tables": ["author_q", "author_r"],
            "combine": "sum",
        },
    },
    {"name": "price", "side": "candidate", "type": "float32", "default": 0.25},
    {"name": "image", "side": "candidate", "type": "float32", "shape": [2]},
]
MEANING: Plain = {
    "user_inputs": ["country", "city", "device", "age", "hist", "hist_len"],
    "outputs": {"ctr": {"kind": "probability"}, "both": {"kind": "vector"}},
    "features": FEATURES,
    "ranking": {"id": "item_id", "score": {"output": "ctr"}},
    "calibration": {"ctr": {"negative_sampling": 0.5}},
    "optimize": {"min_table_bytes": 0},
}
REQUESTS: list[Plain] = [
    {
        "user": {
            "country": "de",
            "city": "köln",
            "device": "web",
            "age": 25,
            "hist": [7, 8, 9, 10],
        },
        "candidates": {
            "item_id": [11, 12, 13],
            "brand": ["acme", "", "ümlaut"],
            "author": [0, 4567, 99],
            "price": [0.5, None, 1.25],
            "image": [[0.5, 1], [0, 0], [1, -1]],
        },
    },
    {
        "user": {"city": "", "device": "tv", "age": 24.9, "hist": []},
        "candidates": {"item_id": [1], "brand": ["x"], "author": [1234], "image": [[1, 2]]},
    },
    {
        "user": {"city": "a", "device": "ios", "age": 90, "country": "fr"},
        "candidates": {"item_id": [2], "brand": ["y"], "author": [5], "image": [[1, 2]]},
    },
]


def bucket(text: object, seed: int, buckets: int) -> int:
    return int(xxhash.xxh64_intdigest(str(text).encode(), seed)) % buckets


TRAINER_KEYS: list[Plain] = [
    {
        "city": [bucket("köln", 3, 900)],
        "device": [3],
        "age": [2],
        "hist": [[bucket(8, 1, 800), bucket(9, 1, 800), bucket(10, 1, 800), 5]],
        "item_id": [11, 12, 13],
        "author": [[0, 0], [45, 67], [0, 99]],
        "price": [0.5, 0.25, 1.25],
        "image": [[0.5, 1], [0, 0], [1, -1]],
    },
    {"city": [bucket("", 3, 900)], "device": [0], "age": [1], "hist": [[5] * 4]},
    {"hist": [[bucket(1, 1, 800), 5, 5, 5]], "device": [1], "age": [3]},
]
"""What a trainer has who hashes with xxhash; of the others there is no reference package here."""


@dataclass(frozen=True)
class Folder:
    """A version folder that can be prepared as a loader does it."""

    root: Path

    @property
    def path(self) -> Path:
        return self.root / "m" / "1"

    def settings(self) -> StoreSettings:
        cache = self.root / "cache"
        return StoreSettings(
            SegmentCache(cache / "segments", 1 << 30),
            BuiltGraphs(cache / "graphs", 1 << 30),
            items=ItemCache(cache / "items", 1 << 30),
        )

    def write(self, meaning: Plain) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "model.yaml").write_text(yaml.safe_dump(meaning, allow_unicode=True))

    def copied(self, root: Path) -> "Folder":
        """Return another version with the same graph."""
        other = Folder(root)
        other.path.mkdir(parents=True)
        (other.path / "model.onnx").hardlink_to(self.path / "model.onnx")
        return other

    def golden(self, documents: list[Plain]) -> None:
        folder = self.path / "golden"
        folder.mkdir(exist_ok=True)
        for number, document in enumerate(documents):
            (folder / f"{number:04}.json").write_text(json.dumps(document))

    def prepare(self, policy: Any = "refuse", path: Path | None = None) -> PreparedVersion:
        place = path or self.path
        published = (place / "manifest.json").is_file()
        model = ModelFolder(ModelName("m"), place.parent, {1: VersionFolder(1, place, published)})
        return prepare_version(
            model, 1, Deployment(golden=policy), OrtModelRunner(), store=self.settings()
        )


def write_model(folder: Path) -> None:
    numbers = ", ".join(str(float(value)) for value in TABLE.ravel())
    table = f"float[{ROWS}, 2] table = {{{numbers}}}"
    write_graph(folder, GRAPH.replace("<int64[1] one", f"<{table}, int64[1] one"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, list[Plain]]:
    """A version with golden requests: keys of the trainer, and the rest as the version has it."""
    folder = Folder(tmp_path_factory.mktemp("golden"))
    write_model(folder.path)
    folder.write(MEANING)
    prepared = folder.prepare("off")
    documents = [made_by(prepared, request) for request in REQUESTS]
    for document, keys in zip(documents, TRAINER_KEYS, strict=True):
        document["keys"] |= keys
    folder.golden(documents)
    return folder, documents


def made_by(prepared: PreparedVersion, request: Plain) -> Plain:
    """Return a golden request as a version answers it now."""
    from anabranch_model_store.golden.keys import feature_keys
    from anabranch_model_store.golden.trial import open_trial
    from anabranch_runtime.ranking.feature_program import ColumnLimits
    from anabranch_runtime.ranking.requests import RankRequest
    from anabranch_runtime.ranking.rules import RankingRules

    plan = prepared.ranking
    assert plan is not None
    rules = RankingRules(plan, prepared.model.outputs)
    raw = {
        side: {name: json.dumps(value).encode() for name, value in request.get(side, {}).items()}
        for side in ("user", "candidates")
    }
    outputs = tuple(spec.name for spec in prepared.model.outputs)
    ready = rules.prepare(
        RankRequest("json", raw["user"], raw["candidates"], outputs=outputs),
        ColumnLimits(1000, 1000, 1000),
    )
    segment = None if prepared.store is None else prepared.store.segment
    with open_trial(prepared, segment, "ort-cpu") as trial:
        ranked = rules.finish(ready, trial.score(ready.arrays, ready.heads)[0])
    order = np.argsort(ranked.positions)
    keys: Plain = {}
    for feature in plan.features:
        found = feature_keys(plan, feature, ready)
        rows = [row[:, 0].tolist() if row.shape[1] == 1 else row.tolist() for row in found.rows]
        keys[feature.name] = [row[0] for row in rows] if found.flat else rows
    scores = {name: ranked.outputs[name][order].tolist() for name in outputs}
    return {"request": request, "keys": keys, "scores": scores, "max_abs_diff": 1e-6}


def test_a_version_with_the_same_keys_and_scores_is_served(recorded: Any) -> None:
    folder, _ = recorded
    prepared = folder.prepare()
    assert not [note for note in prepared.notes if "golden" in note]
    report = check_golden(folder.path, OrtModelRunner())
    assert report.difference is None
    assert report.files == ("golden/0000.json", "golden/0001.json", "golden/0002.json")
    assert (report.scores, report.unproven) == (10, ())
    assert 0 <= report.max_abs_diff <= 1e-6


def test_scores_are_those_of_the_graph_calibrated(recorded: Any) -> None:
    _, documents = recorded
    document = documents[0]
    keys = document["keys"]
    user = [TABLE[keys[name][0]] for name in ("country", "city", "device", "age")]
    user.append(TABLE[keys["hist"][0]].sum(axis=0))
    for row in range(3):
        quotient, remainder = keys["author"][row]
        own = [keys["item_id"][row], keys["brand"][row], quotient, remainder, remainder]
        total = np.sum([*user, *TABLE[own]], axis=0, dtype=np.float64)
        z = total.sum() + 3 + keys["price"][row] + np.dot(keys["image"][row], [0.01, 0.02])
        p = 1 / (1 + np.exp(-z))
        assert document["scores"]["ctr"][row] == pytest.approx(p / (p + (1 - p) / 0.5), abs=1e-5)
        assert document["scores"]["both"][row] == pytest.approx(total.tolist(), abs=1e-5)


MUTATIONS: Mapping[str, tuple[str, Any]] = {
    "another modulus of farmhash": ("country.hash.num_buckets", 1001),
    "another function": ("country.hash.function", "xxh64"),
    "another default": ("country.default", "de"),
    "another seed of xxh64": ("city.hash.seed", 4),
    "another modulus of xxh64": ("city.hash.num_buckets", 901),
    "another first id": ("device.vocabulary.first_id", 2),
    "another order of words": ("device.vocabulary.values", ["android", "ios", "web"]),
    "another id of unknown words": ("device.vocabulary.unknown", 4),
    "another boundary": ("age.bucketize.boundaries", [18, 25.5, 35]),
    "a boundary less": ("age.bucketize.boundaries", [25, 35]),
    "another padding": ("hist.ragged.padding", 0),
    "the other end cut off": ("hist.ragged.keep", "first"),
    "shorter sequences": ("hist.ragged.max_length", 2),
    "longer sequences": ("hist.ragged.max_length", 4),
    "too long sequences refused": ("hist.ragged.keep", "error"),
    "another seed of a sequence": ("hist.hash.seed", 0),
    "another modulus of a sequence": ("hist.hash.num_buckets", 799),
    "a sequence that is not hashed": ("hist.hash", None),
    "another default of a sequence": ("hist.default", []),
    "another seed of murmur3": ("brand.hash.seed", 6),
    "another modulus of murmur3": ("brand.hash.num_buckets", 701),
    "another divisor": ("author.multi_hash.num_buckets", 101),
    "quotient and remainder changed over": ("author.multi_hash.tables", ["author_r", "author_q"]),
    "another default number": ("price.default", 0.5),
}


def mutated(meaning: Plain, path: str, value: Any) -> Plain:
    changed = copy.deepcopy(meaning)
    name, *steps, last = path.split(".")
    place = next(one for one in changed["features"] if one["name"] == name)
    for step in steps:
        place = place[step]
    if value is None:
        del place[last]
    else:
        assert place[last] != value
        place[last] = value
    return changed


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mutation_of_a_rule_is_caught_before_it_serves(
    recorded: Any, tmp_path: Path, mutation: str
) -> None:
    original, documents = recorded
    path, value = MUTATIONS[mutation]
    folder = original.copied(tmp_path)
    folder.write(mutated(MEANING, path, value))
    folder.golden(documents)
    what = f"feature '{path.partition('.')[0]}'"
    if "changed over" in mutation:
        what = "output 'ctr', candidate 1"  # keys are the same, in other inputs
    with pytest.raises(InvalidInput, match=rf"^golden/000\d\.json: {what}") as caught:
        folder.prepare()
    if value != "error":
        assert isinstance(caught.value, Mismatch)
    warned = folder.prepare("warn")
    assert any(caught.value.message in note for note in warned.notes)
    assert not any("golden" in note for note in folder.prepare("off").notes)


def test_calibration_that_differs_is_caught_by_scores(recorded: Any, tmp_path: Path) -> None:
    original, documents = recorded
    folder = original.copied(tmp_path)
    folder.write({**MEANING, "calibration": {"ctr": {"negative_sampling": 0.4}}})
    folder.golden(documents)
    with pytest.raises(Mismatch, match=r"golden/0000\.json: output 'ctr', candidate 0: found 0\."):
        folder.prepare()


def test_an_optimised_version_is_proven_too(recorded: Any, tmp_path: Path) -> None:
    original, documents = recorded
    folder = Folder(tmp_path)
    request = OptimizeRequest(
        original.path / "model.onnx", folder.path, original.path / "model.yaml"
    )
    optimize_folder(request, OrtModelRunner())
    place = folder.path / "golden"
    place.mkdir()
    (folder.path / "manifest.json").unlink()
    folder.golden(documents)
    assert folder.prepare().cut is not None
    wrong = copy.deepcopy(documents)
    wrong[1]["scores"]["ctr"][0] += 0.01
    folder.golden(wrong)
    with pytest.raises(Mismatch, match=r"golden/0001\.json: output 'ctr', candidate 0"):
        folder.prepare()


AGE: Plain = {"keys": {"age": [1]}, "scores": {}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"keys": {"contry": [1]}}, "keys: no feature 'contry'; expected one of 'country', "),
        ({"scores": {"ctx": [1, 2, 3]}}, "scores: no output 'ctx'; expected one of 'ctr', 'both'"),
        ({"scores": {"ctr": [1, 2]}}, "scores['ctr']: 2 scores for 3 candidates"),
        ({"keys": {"brand": [1]}}, "keys['brand']: 1 rows; expected 3"),
        ({"keys": {"city": [1, 2]}}, "keys['city']: 2 rows; expected 1"),
        ({"requests": {}}, "requests"),
        ({"request": {"candidates": {"item_id": []}}}, "expected at least one candidate"),
        ({"request": {"candidates": {"item_id": [1], "brand": []}}}, "columns differ in length"),
        ({"request": {"candidates": {"item_id": [1], "city": ["a"]}}, **AGE}, "'city'"),
        ({"request": {**REQUESTS[1], "user": {"age": "x"}}, **AGE}, "feature 'city'"),
    ],
)
def test_a_malformed_golden_file_is_named(
    recorded: Any, tmp_path: Path, change: Plain, text: str
) -> None:
    original, documents = recorded
    folder = original.copied(tmp_path)
    folder.write(MEANING)
    folder.golden([{**documents[0], **change}])
    with pytest.raises(InvalidInput) as caught:
        folder.prepare()
    assert caught.value.message.startswith("golden/0000.json: ")
    assert text in caught.value.message
    assert not isinstance(caught.value, Mismatch)


@pytest.mark.soak
def test_damaged_golden_files_are_invalid_input_and_nothing_else(
    recorded: Any, tmp_path: Path
) -> None:
    _, documents = recorded
    place = tmp_path / "golden"
    place.mkdir()
    seeds = [json.dumps(document).encode() for document in documents]
    tokens = [b"null", b"1e999", b"[[[", b'"keys"', b"\xff", b"-0", b"{}", b"18446744073709551616"]
    read = 0
    for data in mutated_bytes(seeds, tokens, length(300, 20_000)):
        (place / "0000.json").write_bytes(data)
        files = verify_version(tmp_path, Snapshot(ModelName("m"), 1))
        try:
            read_cases(files)
        except InvalidInput as error:
            message = error.message
        else:
            read, message = read + 1, "golden/0000.json: "
        assert message.startswith("golden/0000.json: ")
    assert read


def test_a_version_that_cannot_rank_cannot_prove_anything(recorded: Any, tmp_path: Path) -> None:
    original, documents = recorded
    folder = original.copied(tmp_path)
    folder.golden(documents)
    with pytest.raises(InvalidInput, match=r"model\.yaml has no ranking section"):
        folder.prepare()


def test_features_without_keys_are_said(recorded: Any, tmp_path: Path) -> None:
    original, documents = recorded
    folder = original.copied(tmp_path)
    folder.write(MEANING)
    keys = {name: rows for name, rows in documents[0]["keys"].items() if name != "brand"}
    folder.golden([{**documents[0], "keys": keys}])
    assert "no golden request has keys of these features: brand" in folder.prepare().notes


def test_a_folder_without_golden_requests_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such folder"):
        check_golden(tmp_path / "none", OrtModelRunner())
    (tmp_path / "1").mkdir()
    with pytest.raises(NotFound, match=r"has no golden/\*\.json"):
        check_golden(tmp_path / "1", OrtModelRunner())


# --- a model whose features are looked up, and whose candidates are sent as ids ------------------

LOOKED_UP = """
dense (float[N] price, float[N, 8] emb) => (float[N] ctr)
<float[8, 1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}, int64[1] one = {1}>
{ y = MatMul (emb, w) s = Squeeze (y, one) z = Add (s, price) ctr = Sigmoid (z) }
"""
LOOKED_UP_MEANING: Plain = {
    "features": [
        {
            "name": "user",
            "side": "user",
            "type": "string",
            "hash": {"function": "xxh64", "seed": 2, "num_buckets": 0},
        },
        {"name": "item_id", "side": "candidate", "type": "int64"},
        {
            "name": "tags",
            "side": "candidate",
            "type": "string",
            "hash": {"function": "xxh64", "seed": 0, "num_buckets": 50},
            "ragged": {"max_length": 2, "keep": "first"},
            "weights": True,
            "default": [],
        },
        {"name": "price", "side": "candidate", "type": "float32", "default": 0.0},
    ],
    "tables": {name: {"missing": "zeros"} for name in ("user_emb", "item_emb", "tag_emb")},
    "lookups": [
        {"feature": "user", "table": "user_emb", "output": {"input": "emb", "columns": [0, 2]}},
        {"feature": "item_id", "table": "item_emb", "output": {"input": "emb", "columns": [2, 4]}},
        {
            "feature": "tags",
            "table": "tag_emb",
            "combiner": "sum",
            "output": {"input": "emb", "columns": [4, 8]},
        },
    ],
    "item_tables": {
        "items": {
            "file": "items/0000.parquet",
            "key": "item_id",
            "columns": {"tags": "tags", "price": "price"},
        }
    },
    "ranking": {"id": "item_id", "score": {"output": "ctr"}, "item_table": "items"},
}


def looked_up(root: Path, meaning: Plain, golden: list[Plain], off: float = 0.0) -> Folder:
    """Publish the version; its item table has the items 1 and 2, and `off` is added to prices."""
    folder = Folder(root)
    source = root / "source"
    write_graph(source, LOOKED_UP)
    (source / "model.yaml").write_text(yaml.safe_dump(meaning))
    tags = [
        [{"ids": one, "weights": w} for one, w in (("red", 0.5), ("new", 2.0), ("c", 1.0))],
        None,
    ]
    kind = pa.list_(pa.struct([("ids", pa.string()), ("weights", pa.float32())]))
    table = {"item_id": [1, 2], "tags": pa.array(tags, kind), "price": [0.5 + off, 0.75]}
    pq.write_table(pa.table(table), source / "0000.parquet")
    files = []
    for number, document in enumerate(golden):
        files.append(source / f"{number:04}.json")
        files[-1].write_text(json.dumps(document))
    folder.path.parent.mkdir(parents=True)
    publish_version(
        folder.path.parent,
        source / "model.onnx",
        version=1,
        model_yaml=source / "model.yaml",
        tables={
            "user_emb": Rows(np.array([signed("anna", 2)]), np.full((1, 2), 0.125, np.float32)),
            "item_emb": Rows(np.arange(1, 4), (np.arange(6).reshape(3, 2) / 50).astype(np.float32)),
            "tag_emb": Rows(
                np.arange(50), (np.arange(200).reshape(50, 4) / 5000).astype(np.float32)
            ),
        },
        golden=files,
        items=[source / "0000.parquet"],
    )
    return folder


def signed(text: str, seed: int) -> int:
    return int(np.uint64(xxhash.xxh64_intdigest(text.encode(), seed)).view(np.int64))


def trained() -> list[Plain]:
    """What a trainer has for a request whose candidates are ids alone; item 9 is unknown."""
    keys = [[bucket("red", 0, 50), bucket("new", 0, 50)], [], []]
    weights = np.arange(1, 9)
    tag_rows = np.arange(200).reshape(50, 4) / 5000
    scores = []
    for item, row, price in zip((1, 2, 9), keys, (0.5, 0.75, 0.0), strict=True):
        emb = np.zeros(8)
        emb[:2] = 0.125
        if item < 4:
            emb[2:4] = np.arange(6).reshape(3, 2)[item - 1] / 50
        emb[4:] = sum((w * tag_rows[key] for w, key in zip((0.5, 2.0), row, strict=False)), emb[4:])
        scores.append(1 / (1 + np.exp(-(emb @ weights + price))))
    return [
        {
            "request": {"user": {"user": "anna"}, "candidates": {"item_id": [1, 2, 9]}},
            "keys": {
                "user": [xxhash.xxh64_intdigest(b"anna", 2)],
                "item_id": [1, 2, 9],
                "tags": keys,
                "price": [0.5, 0.75, 0.0],
            },
            "scores": {"ctr": scores},
            "max_abs_diff": 1e-6,
        }
    ]


def test_looked_up_features_and_item_tables_are_proven(tmp_path: Path) -> None:
    folder = looked_up(tmp_path, LOOKED_UP_MEANING, trained())
    prepared = folder.prepare()
    assert prepared.ranking is not None
    assert prepared.ranking.item_table is not None
    report = check_golden(folder.path, OrtModelRunner())
    assert (report.difference, report.keys, report.scores, report.unproven) == (None, 10, 3, ())


def test_a_feature_that_feeds_nothing_has_no_keys(tmp_path: Path) -> None:
    meaning = copy.deepcopy(LOOKED_UP_MEANING)
    meaning["features"].append({"name": "key", "side": "user", "type": "string", "default": ""})
    meaning["ranking"]["routing_key"] = "key"
    (without,) = trained()
    folder = looked_up(tmp_path / "without", meaning, [without])
    report = check_golden(folder.path, OrtModelRunner())
    assert (report.difference, report.unproven) == (None, ())

    without["keys"]["key"] = [1]
    folder = looked_up(tmp_path / "with", meaning, [without])
    with pytest.raises(InvalidInput, match="feature 'key' feeds neither the graph nor a lookup"):
        check_golden(folder.path, OrtModelRunner())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("user.hash.seed", 0),
        ("user.hash.num_buckets", 2**62),
        ("tags.hash.seed", 1),
        ("tags.hash.num_buckets", 49),
        ("tags.hash.function", "murmur3_x64_128_low"),
        ("tags.ragged.max_length", 1),
        ("tags.ragged.max_length", 3),
        ("tags.ragged.keep", "last"),
        ("tags.default", ["red"]),
        ("price.default", 0.25),
    ],
)
def test_every_mutation_of_a_looked_up_feature_is_caught(
    tmp_path: Path, path: str, value: Any
) -> None:
    folder = looked_up(tmp_path, mutated(LOOKED_UP_MEANING, path, value), trained())
    feature = path.partition(".")[0]
    with pytest.raises(Mismatch, match=rf"golden/0000\.json: feature '{feature}', "):
        folder.prepare()


def test_another_item_table_is_caught(tmp_path: Path) -> None:
    folder = looked_up(tmp_path, LOOKED_UP_MEANING, trained(), off=0.25)
    with pytest.raises(
        Mismatch, match=r"feature 'price', candidate 0: found key 0.75, expected 0.5"
    ):
        folder.prepare()


SEQUENCE: Plain = {"max_length": 3, "keep": "last", "pad_to": 3, "padding": 0}
SEQUENCES_MEANING: Plain = {
    "features": [
        {"name": "recent", "side": "user", "type": "int64", "ragged": SEQUENCE},
        {"name": "brands", "side": "user", "type": "string", "ragged": SEQUENCE,
         "hash": {"function": "xxh64", "num_buckets": 90}},
        {"name": "prices", "side": "user", "type": "float32", "ragged": SEQUENCE},
        {"name": "item_id", "side": "candidate", "type": "int64"},
        {"name": "price", "side": "candidate", "type": "float32", "default": 0.0},
    ],
    "user_inputs": ["recent", "brands", "prices"],
    "item_tables": {
        "items": {
            "file": "items/0000.parquet",
            "key": "id",
            "columns": {"price": "cost"},
            "sequences": {
                "brands": {"ids": "recent", "column": "brand", "missing": "none"},
                "prices": {"ids": "recent", "column": "cost", "missing": -1},
            },
        }
    },
    "ranking": {"id": "item_id", "score": {"output": "y"}, "item_table": "items"},
}  # fmt: skip


def with_sequences(root: Path, meaning: Plain) -> Folder:
    """Publish a version whose sequences follow the user's recent items; 9 is unknown."""
    folder = Folder(root)
    source = root / "source"
    write_graph(
        source,
        "sequences (int64[N, 3] recent, int64[N, 3] brands, float[N, 3] prices, int64[N] item_id, "
        "float[N] price) => (float[N] y) <int64[1] axis = {1}> { "
        "ids = Cast <to: int = 1> (recent) hashed = Cast <to: int = 1> (brands) "
        "a = Mul(ids, hashed) b = Mul(a, prices) c = ReduceSum <keepdims: int = 0> (b, axis) "
        "d = Cast <to: int = 1> (item_id) e = Mul(d, price) y = Add(c, e) }",
    )
    (source / "model.yaml").write_text(json.dumps(meaning))
    table = {
        "id": [1, 2, 3],
        "brand": ["acme", "b", None],
        "cost": pa.array([0.5, 2.5, 4], pa.float32()),
    }
    pq.write_table(pa.table(table), source / "0000.parquet")
    hashed = [bucket(text, 0, 90) for text in ("b", "none", "none")]
    total = 2 * hashed[0] * 2.5 + 9 * hashed[1] * -1 + 3 * hashed[2] * 4
    golden = {
        "request": {"user": {"recent": [1, 2, 9, 3]}, "candidates": {"item_id": [1, 2]}},
        "keys": {
            "recent": [[2, 9, 3]],
            "brands": [hashed],
            "prices": [[2.5, -1, 4]],
            "item_id": [1, 2],
            "price": [0.5, 2.5],
        },
        "scores": {"y": [total + 0.5, total + 5]},
    }
    (source / "0000.json").write_text(json.dumps(golden))
    folder.path.parent.mkdir(parents=True)
    publish_version(
        folder.path.parent,
        source / "model.onnx",
        version=1,
        model_yaml=source / "model.yaml",
        golden=[source / "0000.json"],
        items=[source / "0000.parquet"],
    )
    return folder


def test_sequences_of_items_are_proven(tmp_path: Path) -> None:
    folder = with_sequences(tmp_path, SEQUENCES_MEANING)
    folder.prepare()
    report = check_golden(folder.path, OrtModelRunner())
    assert (report.difference, report.unproven) == (None, ())


@pytest.mark.parametrize(
    ("sequence", "field", "value"),
    [("brands", "missing", "other"), ("prices", "missing", 0), ("prices", "column", "id")],
)
def test_other_side_information_is_caught(
    tmp_path: Path, sequence: str, field: str, value: Any
) -> None:
    meaning = copy.deepcopy(SEQUENCES_MEANING)
    meaning["item_tables"]["items"]["sequences"][sequence][field] = value
    folder = with_sequences(tmp_path, meaning)
    with pytest.raises(Mismatch, match=rf"golden/0000\.json: feature '{sequence}', user"):
        folder.prepare()


def test_a_combiner_that_differs_is_caught_by_scores(tmp_path: Path) -> None:
    meaning = copy.deepcopy(LOOKED_UP_MEANING)
    meaning["lookups"][2]["combiner"] = "mean"
    folder = looked_up(tmp_path, meaning, trained())
    with pytest.raises(Mismatch, match="output 'ctr', candidate 0"):
        folder.prepare()
