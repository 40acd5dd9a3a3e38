"""Growth is the last tenth against the first one after the warm-up."""

import os

import pytest

from anabranch_testing.server_processes import Resources, resources_of
from holdings import growth_of

MIB = 2**20


def test_what_grows_is_seen_and_the_warm_up_is_not() -> None:
    seen = [Resources(1 * MIB, 1, 1)] * 10  # warm-up
    seen += [Resources(100 * MIB, 5, 20)] * 80
    seen += [Resources(103 * MIB, 6, 25)] * 10

    growth = growth_of(seen)

    assert growth.memory == pytest.approx(1.03)
    assert (growth.first_mib, growth.last_mib) == (100, 103)
    assert (growth.threads, growth.descriptors) == (1, 5)


def test_what_stays_has_no_growth() -> None:
    growth = growth_of([Resources(5 * MIB, 2, 3)] * 4)

    assert (growth.memory, growth.threads, growth.descriptors) == (1.0, 0.0, 0.0)


def test_a_process_is_weighed() -> None:
    own = resources_of(os.getpid())

    assert own is not None
    assert own.held_bytes > MIB
    assert own.threads >= 1
    with open(os.devnull), open(os.devnull):
        more = resources_of(os.getpid())
    assert more is not None
    assert more.descriptors == own.descriptors + 2


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert resources_of(2**22 + 1) is None
