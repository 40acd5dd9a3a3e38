from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.splitting import cut, split
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, served_version
from anabranch_wire.errors import Internal, InvalidInput, Unavailable


@pytest.fixture
def served(tmp_path: Path) -> ServedVersion:
    return served_version(scale_model(tmp_path))


@pytest.fixture
def collector() -> Collector:
    return Collector()


@given(rows=st.integers(1, 10_000), parts=st.integers(1, 64))
def test_cut_covers_every_row_once(rows: int, parts: int) -> None:
    parts = min(parts, rows)

    bounds = cut(rows, parts)
    sizes = np.diff(bounds)

    assert bounds[0] == 0
    assert bounds[-1] == rows
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


def make_ticket(served: ServedVersion, collector: Collector, rows: int) -> Ticket:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    return Ticket(ScoreRequest((x,), rows, (), 1e18), served, collector)


def test_parts_are_put_together_in_order_whatever_order_they_finish(
    served: ServedVersion, collector: Collector
) -> None:
    whole = make_ticket(served, collector, 10)
    parts = split(whole, 3)

    for part in reversed(parts):
        part.outputs = (part.request.inputs[0][:, :1],)
        part.sink.deliver([part])

    assert collector.tickets == [whole]
    assert whole.outputs is not None
    np.testing.assert_array_equal(whole.outputs[0], whole.request.inputs[0][:, :1])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_its_lookups_took_lies_between_its_start_and_its_end(
    served: ServedVersion, collector: Collector, order: tuple[int, int]
) -> None:
    whole = make_ticket(served, collector, 4)
    parts = split(whole, 2)
    times = ((10.0, 10.9, 0.8), (10.5, 11.0, 0.25))  # started, finished, of that lookups
    for part, (started, finished, lookup_s) in zip(parts, times, strict=True):
        part.started, part.finished, part.lookup_s = started, finished, lookup_s
        part.outputs = (part.request.inputs[0],)

    for index in order:
        parts[index].sink.deliver([parts[index]])

    assert (whole.started, whole.finished, whole.lookup_s) == (10.5, 11.0, 0.25)


def test_the_first_error_of_a_part_is_the_error_of_the_whole(
    served: ServedVersion, collector: Collector
) -> None:
    whole = make_ticket(served, collector, 4)
    one, two = split(whole, 2)
    first = InvalidInput("first")
    one.error = first
    two.error = Unavailable("second")

    one.sink.deliver([one])
    assert collector.tickets == []
    two.sink.deliver([two])

    assert whole.error is first
    assert whole.outputs is None
    assert collector.tickets == [whole]


def test_cancelling_the_whole_cancels_its_parts(
    served: ServedVersion, collector: Collector
) -> None:
    whole = make_ticket(served, collector, 4)
    parts = split(whole, 2)

    whole.cancelled = True

    assert all(part.cancelled for part in parts)


@pytest.mark.parametrize("shape", [(3, 1), (2, 2), (2,)], ids=str)
def test_parts_that_do_not_fit_together_are_an_error(
    served: ServedVersion, collector: Collector, shape: tuple[int, ...]
) -> None:
    whole = make_ticket(served, collector, 4)
    one, two = split(whole, 2)
    one.outputs = (np.zeros((2, 1), np.float32),)
    two.outputs = (np.zeros(shape, np.float32),)

    one.sink.deliver([one])
    two.sink.deliver([two])

    assert collector.tickets == [whole]
    assert isinstance(whole.error, Internal)
    assert whole.outputs is None
