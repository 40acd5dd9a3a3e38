"""Rates are found by bisection, and loads reach a server through a process of their own."""

import math
from pathlib import Path

import pytest

from ctr_mlp import Body
from open_loops import OpenLoad, capacity, highest_rate, run_open_loop
from openloop.limit import null_server


@pytest.fixture
def body(tmp_path: Path) -> Body:
    path = tmp_path / "body"
    path.write_bytes(b"x" * 10)
    return Body("binary", 1, path, "/infer", {"A": "b"})


@pytest.mark.parametrize("limit", [12.0, 50.0, 99.0])
def test_the_highest_good_rate_is_found(limit: float) -> None:
    tried = []

    def is_good(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = highest_rate(is_good, 10.0, 100.0, precision=0.03)

    assert found <= limit <= found * 1.03
    assert len(tried) <= 2 + math.log2(math.log(10) / math.log(1.03))


def test_no_rate_is_good_when_the_lowest_is_not() -> None:
    assert highest_rate(lambda _: False, 1.0, 2.0) == 0.0


def test_a_load_is_run_and_read_back(body: Body) -> None:
    with null_server() as address:
        seen = run_open_loop(OpenLoad(address, body, 2, None, 1.0), 100, 0.5)

    assert seen.counts.statuses == {200: 50}


def test_capacity_is_more_than_nothing(body: Body) -> None:
    with null_server() as address:
        assert capacity(OpenLoad(address, body, 4, None, 1.0), 200) > 0


def test_a_load_that_fails_says_why(body: Body) -> None:
    with null_server() as address:
        pass
    with pytest.raises(RuntimeError, match="no connection"):
        run_open_loop(OpenLoad(address, body, 1, None, 0.1), 10, 0.1)
