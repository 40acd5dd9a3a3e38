"""The committed model, requests and data of the example agree with each other; no torch needed."""

import datetime
import hashlib
import io
import math
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import open_bandit
from anabranch_server import demo_requests
from open_bandit.features import (
    BAG,
    BUCKETS,
    Inputs,
    candidate_inputs,
    hash_key,
    impression_inputs,
    top_items,
)
from open_bandit.impressions import ITEMS, Impressions, Items, read_impressions, read_items
from open_bandit.quality import auc, log_loss
from open_bandit.recording import choose_users, record

DATA = Path(open_bandit.__file__).parent / "data"
VERSION = demo_requests.demo_data() / "models" / demo_requests.MODEL / "1"

# Scores near 0.005 from float32 sums of about a hundred terms, added up in any order.
TOLERANCE = 1e-7


@pytest.fixture(scope="module")
def items() -> Items:
    return read_items(DATA / "bts-item_context.csv")


@pytest.fixture(scope="module")
def later() -> Impressions:
    return read_impressions(DATA / "bts-all.csv.gz").split(datetime.date(2019, 11, 29))[1]


@pytest.fixture(scope="module")
def recording() -> demo_requests.Recording:
    return demo_requests.load()


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(
        (VERSION / "model.onnx").read_bytes(), providers=["CPUExecutionProvider"]
    )


def scores_of(session: onnxruntime.InferenceSession, inputs: Inputs) -> NDArray[np.float32]:
    scores: NDArray[np.float32] = session.run(["click"], dict(inputs))[0]
    return scores[:, 0]


def test_the_log_is_split_by_time_and_loses_nothing() -> None:
    everything = read_impressions(DATA / "bts-all.csv.gz")

    earlier, later = everything.split(datetime.date(2019, 11, 29))

    assert (len(earlier), len(later)) == (7262, 2738)
    assert (int(earlier.clicks.sum()), int(later.clicks.sum())) == (34, 8)
    assert earlier.times.max() < later.times.min()
    assert (np.diff(everything.times) >= 0).all()


def test_keys_are_unsigned_xxh64_modulo_buckets() -> None:
    # Digests with seed 0, from the xxHash specification's reference implementation.
    assert hash_key("") == 0xEF46DB3751D8E999 % BUCKETS
    assert hash_key("a") == 0xD24EC4F1A98C6E5B % BUCKETS
    assert hash_key("ä") == hash_key(b"\xc3\xa4".decode())


def test_top_items_are_sorted_by_affinity_then_id_and_padded() -> None:
    affinities = np.zeros((2, ITEMS), np.float32)
    affinities[0, [3, 7, 9]] = [1, 2, 1]

    keys = top_items(affinities)

    assert keys.dtype == np.int64
    assert keys.tolist() == [[8, 4, 10] + [0] * (BAG - 3), [0] * BAG]


def test_inputs_of_impressions_and_of_candidates_agree(later: Impressions, items: Items) -> None:
    row = 11
    logged = impression_inputs(later.rows(np.array([row])), items)

    candidates = candidate_inputs(later, row, items, int(later.positions[row]))

    for name, values in logged.items():
        np.testing.assert_array_equal(values[0], candidates[name][later.item_ids[row]])


def test_recorded_requests_hold_what_the_trainer_s_code_makes_of_the_data(
    later: Impressions, items: Items, recording: demo_requests.Recording
) -> None:
    rows = choose_users(later)
    scores = iter(np.array(user.expected, np.float32) for user in recording.users)

    assert record(later.rows(rows), items, lambda _: next(scores)) == recording

    for row, user in zip(rows, recording.users, strict=True):
        made = candidate_inputs(later, int(row), items, recording.position)
        shipped = recording.inputs(user)
        assert made.keys() == shipped.keys()
        for name, values in made.items():
            np.testing.assert_array_equal(values, shipped[name], err_msg=name)
            assert values.dtype == shipped[name].dtype


def test_recorded_users_are_different_real_users_of_the_later_days(
    recording: demo_requests.Recording,
) -> None:
    users = {(user.groups, user.affinity) for user in recording.users}

    assert len(users) == len(recording.users) == 20
    assert sum(bool(user.affinity) for user in recording.users) == 12
    assert all(user.time >= 1574985600 for user in recording.users)  # 2019-11-29 UTC


def test_the_model_gives_the_recorded_scores_and_order(
    session: onnxruntime.InferenceSession, recording: demo_requests.Recording
) -> None:
    for user in recording.users:
        scores = scores_of(session, recording.inputs(user))

        np.testing.assert_allclose(scores, user.expected, rtol=0, atol=TOLERANCE)
        assert sorted(user.order) == list(range(ITEMS))
        assert (np.diff(scores[list(user.order)]) <= 2 * TOLERANCE).all()
        assert int(np.argmax(scores)) == user.order[0]


def test_a_row_scores_alone_as_among_others(
    session: onnxruntime.InferenceSession, recording: demo_requests.Recording
) -> None:
    inputs = recording.inputs(recording.users[-1])
    together = scores_of(session, inputs)

    for row in (0, 41, 79):
        alone = scores_of(session, {name: values[row : row + 1] for name, values in inputs.items()})
        np.testing.assert_allclose(alone, together[row : row + 1], rtol=0, atol=TOLERANCE)


def test_a_past_click_lifts_the_item(
    session: onnxruntime.InferenceSession, recording: demo_requests.Recording
) -> None:
    user = next(user for user in recording.users if user.affinity)
    stranger = msgspec.structs.replace(user, affinity=(), top_items=(0,) * BAG)
    item_id = user.affinity[0][0]

    known = scores_of(session, recording.inputs(user))[item_id]

    assert known > 1.2 * scores_of(session, recording.inputs(stranger))[item_id]


@pytest.mark.parametrize(("name", "rows"), [("ranking.npz", ITEMS), ("one_row.npz", 1)])
def test_warm_up_files_hold_the_inputs_and_the_expected_output(
    session: onnxruntime.InferenceSession, name: str, rows: int
) -> None:
    with np.load(io.BytesIO((VERSION / "warmup" / name).read_bytes()), allow_pickle=False) as file:
        arrays = dict(file)
    expected = arrays.pop("expected.click")

    assert arrays.keys() == {declared.name for declared in session.get_inputs()}
    assert expected.shape == (rows, 1)
    np.testing.assert_allclose(scores_of(session, arrays), expected[:, 0], rtol=0, atol=TOLERANCE)


def test_the_graph_is_small_self_contained_and_free_of_batch_sizes() -> None:
    text = (VERSION / "model.onnx").read_bytes()
    model = onnx.load_from_string(text)
    declared = [*model.graph.input, *model.graph.output]

    assert len(text) < 2 * 2**20
    assert model.opset_import[0].version >= 18
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in declared] == ["N"] * 8
    assert all(not weight.external_data for weight in model.graph.initializer)
    assert not model.metadata_props
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)


def test_the_version_is_published_with_the_hashes_of_its_files() -> None:
    manifest = msgspec.json.decode((VERSION / "manifest.json").read_bytes())

    named = {file["path"]: file["sha256"] for file in manifest["files"]}

    assert set(named) == {
        "model.onnx", "model.yaml", "warmup/ranking.npz", "warmup/one_row.npz",
        "golden/0000.json", "golden/0001.json", "golden/0002.json", "items/0000.parquet",
    }  # fmt: skip
    for path, digest in named.items():
        assert hashlib.sha256(VERSION.joinpath(path).read_bytes()).hexdigest() == digest, path


def test_auc_is_the_chance_that_a_clicked_row_scores_higher() -> None:
    clicks = np.array([1, 0, 0, 0], np.float32)

    assert auc(clicks, np.array([4, 1, 2, 3], np.float32)).value == 1
    assert auc(clicks, np.array([2, 1, 2, 3], np.float32)).value == 0.5
    assert auc(clicks, np.ones(4, np.float32)).value == 0.5


def test_log_loss_of_a_coin_is_log_two() -> None:
    halves = np.full(6, 0.5, np.float32)

    assert log_loss(np.array([0, 1, 1, 0, 0, 1], np.float32), halves) == math.log(2)
