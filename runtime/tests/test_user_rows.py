"""Users sent once, inside a session group: merged, cut and padded like rows that were sent."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.settings import BatchSettings
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import write_graph
from anabranch_testing.groups import (
    Collector,
    Counts,
    MakeGroup,
    load_version,
    ticket_of,
    until_asleep,
)
from anabranch_wire.tensors import TensorSpec


def match_model(folder: Path, *, min_rows: int = 1, independent: bool = True) -> DenseModel:
    """score = user . item; both are [N, 2] FP32, score is [N] FP32."""
    path = write_graph(
        folder,
        "match (float[N, 2] user, float[N, 2] item) => (float[N] score) <int64[1] last = {1}> "
        "{ both = Mul(user, item) \n score = ReduceSum <keepdims: int = 0> (both, last) }",
    )
    return DenseModel(
        path,
        (TensorSpec("user", "FP32", (-1, 2)), TensorSpec("item", "FP32", (-1, 2))),
        (TensorSpec("score", "FP32", (-1,)),),
        RowLayout(independent, min_rows, (0, 0), (0,)),
    )


def user(value: float, rows: int = 1) -> NDArray[np.float32]:
    return np.full((rows, 2), value, np.float32)


def items(rows: int) -> NDArray[np.float32]:
    return np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)


def test_requests_of_different_users_merge(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, match_model(tmp_path), users=("user",))
    sink = Collector()
    backend.hold()
    group.submit(ticket_of(served, sink, user(1), items(1)))
    assert backend.entered.acquire(timeout=10)

    tickets = [
        ticket_of(served, sink, user(2), items(3)),
        ticket_of(served, sink, user(3, 4), items(4)),
        ticket_of(served, sink, user(5), items(0)),
        ticket_of(served, sink, user(7), items(2)),
    ]
    for ticket in tickets:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(5)

    assert counts.batches[-1] == (0, 9, 4)
    for ticket, value, rows in zip(tickets, (2, 3, 5, 7), (3, 4, 0, 2), strict=True):
        assert ticket.outputs is not None
        np.testing.assert_array_equal(ticket.outputs[0], value * items(rows).sum(axis=1))


def test_a_request_is_cut_with_its_user(
    make_group: MakeGroup, backend: GatedBackend, counts: Counts, tmp_path: Path
) -> None:
    group = make_group(2, BatchSettings(max_rows=16, split_rows=3))
    served = load_version(group, match_model(tmp_path), users=("user",))
    sink = Collector()
    until_asleep(group)

    group.submit(ticket_of(served, sink, user(4), items(9)))
    (done,) = sink.wait(1)

    assert sorted(rows for _, rows, _ in counts.batches) == [4, 5]
    assert done.outputs is not None
    np.testing.assert_array_equal(done.outputs[0], 4 * items(9).sum(axis=1))


@pytest.mark.parametrize("independent", [True, False])
def test_users_of_requests_that_run_alone_are_repeated_too(
    make_group: MakeGroup, tmp_path: Path, independent: bool
) -> None:
    model = match_model(tmp_path, min_rows=4 if independent else 1, independent=independent)
    group = make_group()
    served = load_version(group, model, users=("user",))
    sink = Collector()

    group.submit(ticket_of(served, sink, user(6), items(3)))
    (done,) = sink.wait(1)

    assert done.outputs is not None
    np.testing.assert_array_equal(done.outputs[0], 6 * items(3).sum(axis=1))
