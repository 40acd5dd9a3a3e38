"""The golden requests of the example are the trainer's, and tell of any rule that was changed."""

import datetime
import json
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow.parquet as pq
import pytest
import yaml

import open_bandit
from anabranch_model_store.golden.folders import check_golden
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_server import demo_requests
from anabranch_testing.servers import started_server
from anabranch_wire.errors import AnabranchError
from open_bandit.features import BUCKETS, Inputs
from open_bandit.golden import golden_rankings, write_golden
from open_bandit.impressions import Impressions, Items, read_impressions, read_items
from open_bandit.rankings import Ranking, inputs_of, keys_of, ranking_of
from open_bandit.recording import choose_users

DATA = Path(open_bandit.__file__).parent / "data"
VERSION = demo_requests.demo_data() / "models" / demo_requests.MODEL / "1"
HASHED = [f"user_feature_{k}" for k in range(4)] + [f"item_feature_{k}" for k in range(1, 4)]

Document = dict[str, Any]


@pytest.fixture(scope="module")
def items() -> Items:
    return read_items(DATA / "bts-item_context.csv")


@pytest.fixture(scope="module")
def users() -> Impressions:
    later = read_impressions(DATA / "bts-all.csv.gz").split(datetime.date(2019, 11, 29))[1]
    return later.rows(choose_users(later))


@pytest.fixture(scope="module")
def score() -> Callable[[Inputs], np.ndarray]:
    session = onnxruntime.InferenceSession(
        VERSION.joinpath("model.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )

    def scores(inputs: Inputs) -> np.ndarray:
        found: np.ndarray = session.run(["click"], dict(inputs))[0]
        return found[:, 0]

    return scores


def golden_files() -> list[Document]:
    folder = VERSION.joinpath("golden")
    names = sorted(path.name for path in folder.iterdir())
    return [json.loads(folder.joinpath(name).read_text("utf-8")) for name in names]


def test_raw_requests_become_the_inputs_that_the_model_was_trained_on(
    users: Impressions, items: Items
) -> None:
    recording = demo_requests.load()

    for row, user in enumerate(recording.users):
        inputs = inputs_of(keys_of(ranking_of(users, row, recording.position), items))

        for name, values in recording.inputs(user).items():
            np.testing.assert_array_equal(inputs[name], values, err_msg=name)
            assert inputs[name].dtype == values.dtype


def test_the_demo_asks_as_the_trainer_would(users: Impressions, items: Items) -> None:
    recording = demo_requests.load()

    for row, user in enumerate(recording.users):
        asked = recording.ranking(user)

        assert keys_of(Ranking(*asked), items) == keys_of(ranking_of(users, row, 1), items)


def test_golden_files_hold_what_the_trainer_s_code_makes_of_the_data(
    tmp_path: Path, users: Impressions, items: Items, score: Callable[[Inputs], np.ndarray]
) -> None:
    shipped = golden_files()
    written = [
        json.loads(path.read_text("utf-8"))
        for path in write_golden(tmp_path, golden_rankings(users), items, score)
    ]

    assert len(shipped) == len(written) == 3
    for one, other in zip(shipped, written, strict=True):
        scores = [document.pop("scores")["click"] for document in (one, other)]
        assert one == other
        np.testing.assert_allclose(*scores, rtol=0, atol=one["max_abs_diff"] / 2)


def test_golden_requests_have_values_at_the_edges() -> None:
    requests = [document["request"] for document in golden_files()]
    texts = {text for one in requests for text in (*one["user"].values(),) if isinstance(text, str)}
    bags = [one["user"].get("clicked_items") for one in requests]

    assert "" in texts
    assert any(not text.isascii() for text in texts)
    assert any(len(text) > 100 for text in texts)
    assert None in bags
    assert any(bag and len(bag) > 5 and not set(bag) <= set(range(80)) for bag in bags)


def test_the_item_table_is_the_catalogue(items: Items, tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    path.write_bytes(VERSION.joinpath("items", "0000.parquet").read_bytes())

    table = pq.read_table(path)

    assert table["item_id"].to_pylist() == list(range(80))
    np.testing.assert_array_equal(table["item_feature_0"].to_numpy(), items.values)
    for k in range(3):
        assert table[f"item_feature_{k + 1}"].to_pylist() == items.groups[:, k].tolist()


# --- what a changed rule comes to -----------------------------------------------------------------


def _set(feature: str, *path: str, to: object) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        place = next(one for one in document["features"] if one["name"] == feature)
        for key in path[:-1]:
            place = place[key]
        assert place[path[-1]] != to
        place[path[-1]] = to

    return change


def mutations() -> Iterator[Any]:
    def case(feature: str, *path: str, to: object) -> Any:
        return pytest.param(
            feature, _set(feature, *path, to=to), id=f"{feature}-{'.'.join(path)}-{to}"
        )

    for feature in HASHED:
        yield case(feature, "hash", "seed", to=1)
        yield case(feature, "hash", "num_buckets", to=BUCKETS - 1)
        yield case(feature, "hash", "function", to="murmur3_x64_128_low")
    yield case("clicked_items", "ragged", "padding", to=1)
    yield case("clicked_items", "ragged", "keep", to="last")
    yield case("clicked_items", "ragged", "keep", to="error")
    yield case("clicked_items", "ragged", "max_length", to=4)
    yield case("clicked_items", "vocabulary", "first_id", to=0)
    yield case("clicked_items", "vocabulary", "unknown", to=1)
    yield case("item_id", "vocabulary", "first_id", to=0)
    yield case("position", "default", to=2)
    yield case("affinity", "default", to=1.0)


def copy_of_the_version(folder: Path, change: Callable[[Document], None] | None) -> Path:
    """Copy the version; a copy whose files differ from its manifest goes without one."""
    with resources.as_file(VERSION) as shipped:
        shutil.copytree(shipped, folder)
    if change is not None:
        document = yaml.safe_load((folder / "model.yaml").read_text("utf-8"))
        change(document)
        (folder / "model.yaml").write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    (folder / "manifest.json").unlink()
    return folder


def found_by_golden_requests(folder: Path) -> str:
    """Prepare a version as servers do, run its golden requests, and return what is wrong."""
    try:
        report = check_golden(folder, OrtModelRunner())
    except AnabranchError as error:
        return error.message
    return report.difference.text if report.difference is not None else ""


def test_the_version_as_it_is_proves_every_feature(tmp_path: Path) -> None:
    folder = copy_of_the_version(tmp_path / "1", None)

    report = check_golden(folder, OrtModelRunner())

    assert report.difference is None
    assert report.unproven == ()
    assert len(report.files) == 3


@pytest.mark.parametrize(("feature", "change"), list(mutations()))
def test_a_changed_rule_is_found(
    tmp_path: Path, feature: str, change: Callable[[Document], None]
) -> None:
    folder = copy_of_the_version(tmp_path / "1", change)

    text = found_by_golden_requests(folder)

    assert f"'{feature}'" in text
    assert "golden/000" in text


def test_versions_with_changed_rules_are_never_served(tmp_path: Path) -> None:
    model = tmp_path / "models" / demo_requests.MODEL
    copy_of_the_version(model / "1", None)
    changes = {
        2: _set("user_feature_2", "hash", "seed", to=1),
        3: _set("item_feature_3", "hash", "num_buckets", to=BUCKETS * 2),
        4: _set("clicked_items", "ragged", "padding", to=1),
        5: _set("clicked_items", "ragged", "keep", to="last"),
    }
    for number, change in changes.items():
        copy_of_the_version(model / str(number), change)

    with started_server(tmp_path / "models", tmp_path, "--settle-s", "0") as server:
        assert server.ready["models"] == {demo_requests.MODEL: "1"}
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]

    refused = {line["version"]: line["msg"] for line in lines if line.get("result") == "failed"}
    assert refused.keys() == changes.keys()
    for number, feature in zip(
        changes, ("user_feature_2", "item_feature_3", "clicked_items", "clicked_items"), strict=True
    ):
        assert f"'{feature}'" in refused[number]
        assert "golden/000" in refused[number]


# --- what the server writes down is what the trainer would have computed --------------------------


def test_the_feature_log_has_the_keys_that_the_trainer_computes(
    tmp_path: Path, items: Items
) -> None:
    log_dir = tmp_path / "features"
    settings = tmp_path / "anabranch.yaml"
    settings.write_text(f"feature_log: {{sample: 1.0, dir: {log_dir}}}\n")
    documents = golden_files()
    copy_of_the_version(tmp_path / "models" / demo_requests.MODEL / "1", None)

    options = ("--settle-s", "0", "--config", str(settings))
    with started_server(tmp_path / "models", tmp_path, *options) as server:
        for number, document in enumerate(documents):
            answer = requested(server.http, document["request"], f"golden-{number}")
            assert answer["model_version"] == "1"
        assert server.stop() == 0

    rows = pq.ParquetDataset(log_dir / demo_requests.MODEL / "1").read().to_pylist()
    assert {row["request_id"] for row in rows} == {"golden-0", "golden-1", "golden-2"}
    for number, document in enumerate(documents):
        request = document["request"]
        keys = keys_of(Ranking(request["user"], request["candidates"]), items)
        logged = sorted(
            (row for row in rows if row["request_id"] == f"golden-{number}"),
            key=lambda row: row["position"],
        )
        for name, expected in keys.items():
            found = [row[f"feature_{name}"] for row in logged]
            wanted = expected * len(logged) if len(expected) == 1 else expected
            if name in ("affinity", "item_feature_0"):
                np.testing.assert_array_equal(np.float32(found), np.float32(wanted))
            else:
                assert found == wanted, name
        np.testing.assert_allclose(
            [row["score"] for row in logged],
            document["scores"]["click"],
            rtol=0,
            atol=document["max_abs_diff"],
        )


def requested(http: str, request: Document, request_id: str) -> Document:
    """Ask for a ranking as any client would."""
    call = urllib.request.Request(
        f"http://{http}/v1/models/{demo_requests.MODEL}:rank",
        data=json.dumps(request).encode(),
        headers={"Content-Type": "application/json", "X-Request-Id": request_id},
    )
    with urllib.request.urlopen(call, timeout=30) as response:
        answer: Document = json.load(response)
    return answer
