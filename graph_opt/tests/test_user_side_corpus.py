"""Real models with their users once: merged batches of several users, and each user alone."""

from pathlib import Path

import numpy as np
import pytest

from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.user_side.mac_counts import user_gain
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_testing.users_once import UserRequest, run_merged, run_whole, tiled

USERS = ("uid", "city", "hist_iid", "hist_cid", "age")
COUNTS = (3, 1, 5)
MAX_DIFF = 1e-5


def has_both_sides(model: CorpusModel) -> bool:
    names = set(model.batches()[0])
    return bool(names & set(USERS)) and not names <= set(USERS)


MODELS = [model for model in corpus_models() or tree_models() if has_both_sides(model)]

ALONE = {
    # The input of the user has one row in the graph itself.
    "own_user_broadcast_dynamo18",
    "own_user_broadcast_ts17",
}


def requests_of(model: CorpusModel) -> list[UserRequest]:
    """Users and candidates drawn from the rows of both batches."""
    one, two = model.batches()
    both = {name: np.concatenate([one[name], two[name]]) for name in one}
    total = len(next(iter(both.values())))
    rng = np.random.default_rng(5)
    requests = []
    for number, count in enumerate(COUNTS):
        rows = rng.integers(0, total, count)
        requests.append(
            UserRequest(
                user={n: a[number : number + 1] for n, a in both.items() if n in USERS},
                rows={n: a[rows] for n, a in both.items() if n not in USERS},
            )
        )
    return requests


def padded(request: UserRequest, fewest: int) -> UserRequest:
    """A request with as many rows as the graph needs, the last one repeated."""
    rows = [*range(request.count), *[request.count - 1] * (fewest - request.count)]
    return UserRequest(request.user, {name: array[rows] for name, array in request.rows.items()})


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_users_of_a_merged_batch_get_what_the_original_answers(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    optimized = optimize(path, OptimizeOptions(min_table_bytes=0, user_inputs=USERS))
    if not optimized.user_inputs:
        assert optimized.notes or model.name in ALONE
        return
    requests = requests_of(model)

    merged = run_merged(optimized, requests)

    expected = run_whole(path, tiled(requests))
    fewest = prove_rows(path).min_rows
    begin = 0
    for request in requests:
        alone = run_merged(optimized, [padded(request, fewest)])
        for name, array in expected.items():
            own = slice(begin, begin + request.count)
            found = alone[name][: request.count]
            np.testing.assert_allclose(merged[name][own], array[own], rtol=0, atol=MAX_DIFF)
            np.testing.assert_allclose(found, array[own], rtol=0, atol=MAX_DIFF)
        begin += request.count


ENCODERS = ("dcnv2", "dssm_score", "esmm", "gru4rec", "mmoe", "din_", "youtubednn")


@pytest.mark.parametrize(
    "model",
    [model for model in MODELS if any(word in model.name for word in ENCODERS)],
    ids=lambda model: model.name,
)
def test_what_sees_no_candidate_runs_once(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    once = optimize(path, OptimizeOptions(min_table_bytes=0, user_inputs=USERS))
    by_row = optimize(path, OptimizeOptions(min_table_bytes=0))

    assert once.user is not None, once.notes
    assert any("times faster" in note for note in once.notes)
    gain = user_gain(by_row.dense, once.user, once.dense, 1000)
    assert gain is not None
    assert gain.bound > 1.0


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_weight_keeps_its_name(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    once = optimize(path, OptimizeOptions(min_table_bytes=0, user_inputs=USERS))
    by_row = optimize(path, OptimizeOptions(min_table_bytes=0))

    assert dict(once.weights) == dict(by_row.weights)


def test_users_within_one_packed_input_are_left_alone() -> None:
    packed = next(model for model in tree_models() if set(model.batches()[0]) <= {"X", "x"})

    optimized = optimize(
        Path(packed.folder / "model.onnx"),
        OptimizeOptions(min_table_bytes=0, user_inputs=tuple(packed.batches()[0])),
    )

    assert optimized.user is None
    assert optimized.user_inputs == ()
