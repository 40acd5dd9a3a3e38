"""Requests in the staging of a model with a user side: which user each row gets."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.cut_engines import CutBinding, build_engine
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_batch, stage_request
from anabranch_testing.cut_graphs import INPUTS, CutRequest, cut_graphs
from anabranch_testing.graphs import scale_model

AXES = (0,) * len(INPUTS)
ITEMS, USER, X, CODE, AGE = range(5)


@pytest.fixture
def binding(tmp_path: Path) -> CutBinding:
    bound = build_engine(OrtCpuBackend(), cut_graphs(tmp_path)).bind()
    assert isinstance(bound, CutBinding)
    return bound


def request_of(rows: int, user: int, *, users: int = 1) -> CutRequest:
    return CutRequest(
        items=[(row, row + 1) for row in range(rows)],
        user=[user + number for number in range(users)],
        x=[10.0 * user + row for row in range(rows)],
        code=list(range(rows)),
        age=[20.0 + user + number for number in range(users)],
    )


def staged(
    binding: CutBinding,
    requests: list[CutRequest],
    run_rows: int,
    company: CutRequest | None = None,
) -> CutStage:
    parts = [(request.admitted(), request.rows) for request in requests]
    along = None if company is None else company.admitted()
    stage = stage_batch(binding, parts, AXES, run_rows, along)
    assert isinstance(stage, CutStage)
    return stage


def index_of(stage: CutStage) -> list[int]:
    assert stage.index is not None
    return [int(number) for number in stage.index]


def flat(array: NDArray[np.generic]) -> list[float]:
    return [float(number) for number in array.reshape(-1)]


def test_the_user_of_a_request_alone_is_staged_once(binding: CutBinding) -> None:
    stage = stage_request(binding, request_of(3, user=5).admitted(), 3)

    assert isinstance(stage, CutStage)
    assert index_of(stage) == [0, 0, 0]
    assert flat(stage.inputs[USER]) == [5]
    assert flat(stage.inputs[AGE]) == [25]
    assert flat(stage.inputs[X]) == [50, 51, 52]


def test_a_user_for_each_row_stays_one_for_each_row(binding: CutBinding) -> None:
    stage = stage_request(binding, request_of(3, user=2, users=3).admitted(), 3)

    assert isinstance(stage, CutStage)
    assert index_of(stage) == [0, 1, 2]
    assert flat(stage.inputs[USER]) == [2, 3, 4]


def test_one_input_sent_per_row_makes_all_of_them_so(binding: CutBinding) -> None:
    # The same user with two ages is two users.
    request = request_of(2, user=3)
    arrays = list(request.admitted())
    arrays[AGE] = np.array([[30.0], [40.0]], np.float32)

    stage = stage_request(binding, tuple(arrays), 2)

    assert isinstance(stage, CutStage)
    assert index_of(stage) == [0, 1]
    assert flat(stage.inputs[USER]) == [3, 3]
    assert flat(stage.inputs[AGE]) == [30, 40]


def test_users_of_a_batch_stand_in_the_order_of_its_requests(binding: CutBinding) -> None:
    requests = [request_of(2, user=1), request_of(1, user=4), request_of(2, user=6, users=2)]

    stage = staged(binding, requests, 5)

    assert flat(stage.inputs[USER]) == [1, 4, 6, 7]
    assert index_of(stage) == [0, 0, 1, 2, 3]
    assert flat(stage.inputs[X]) == [10, 11, 40, 60, 61]


def test_a_request_without_rows_has_no_user(binding: CutBinding) -> None:
    stage = staged(binding, [request_of(0, 0, users=0), request_of(2, user=3)], 2)

    assert flat(stage.inputs[USER]) == [3]
    assert index_of(stage) == [0, 0]


def test_rows_that_pad_a_batch_have_its_last_user(binding: CutBinding) -> None:
    stage = staged(binding, [request_of(1, user=1), request_of(2, user=2)], 5)

    assert index_of(stage) == [0, 1, 1, 1, 1]
    assert flat(stage.inputs[X]) == [10, 20, 21, 21, 21]


def test_rows_that_pad_nothing_have_a_user_too(binding: CutBinding) -> None:
    stage = staged(binding, [request_of(0, 0, users=0)], 2)

    assert index_of(stage) == [0, 0]
    assert flat(stage.inputs[USER]) == [0]
    assert flat(stage.inputs[ITEMS]) == [0, 0, 0, 0]


def test_company_comes_behind_the_requests_with_its_own_users(binding: CutBinding) -> None:
    company = request_of(2, user=6, users=2)

    stage = staged(binding, [request_of(2, user=1)], 5, company)

    assert flat(stage.inputs[USER]) == [1, 6, 7]
    assert index_of(stage) == [0, 0, 1, 2, 2]


def test_whole_graphs_are_staged_as_ever(tmp_path: Path) -> None:
    whole = build_engine(OrtCpuBackend(), scale_model(tmp_path)).bind()
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)

    alone = stage_request(whole, (rows,), 2)
    np.testing.assert_array_equal(alone.inputs[0], rows)
    together = stage_batch(whole, [((rows,), 2), ((rows[:1],), 1)], (0,), 4, None)

    np.testing.assert_array_equal(together.inputs[0], rows[[0, 1, 0, 0]])
