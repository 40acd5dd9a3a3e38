"""How busy processors are, as builds look at it."""

import os
import threading

import pytest

from anabranch_server.worker.spare_time import ThreadClock, idle_seconds, spare_processors
from anabranch_testing.event_loops import on_loop

_STAT = """cpu  900 0 300 9000 90 0 10 0 0 0
cpu0 300 5 100 1000 10 0 10 0 0 0
cpu1 300 0 100 2000 20 0 0 0 0 0
cpu10 300 0 100 6000 60 0 0 0 0 0
intr 1 2 3
"""


def test_idle_time_is_that_of_the_processors_one_may_use() -> None:
    ticks = os.sysconf("SC_CLK_TCK")

    assert idle_seconds(_STAT, {0, 1}) == 3035 / ticks
    assert idle_seconds(_STAT, {10}) == 6060 / ticks


@pytest.mark.parametrize("text", ["", "cpu0 a b c d e f\n", "cpu1 1 2 3 4 5 6\n"])
def test_what_says_nothing_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|no processor"):
        idle_seconds(text, {0})


@on_loop
async def test_no_more_is_spare_than_there_is() -> None:
    # A tick more or less at both ends of the look.
    assert 0.0 <= await spare_processors() <= 1.5 * len(os.sched_getaffinity(0))


def test_the_time_of_a_thread_is_its_own() -> None:
    clock = ThreadClock()
    assert clock.used_s() == 0.0
    begun, ending = threading.Event(), threading.Event()

    def work() -> None:
        clock.begin()
        sum(range(300_000))
        begun.set()
        ending.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(30)
    used_s = clock.used_s()
    sum(range(1_000_000))
    later_s = clock.used_s()
    ending.set()
    thread.join()

    assert 0.0 < used_s <= later_s < used_s + 0.005, "the thread slept"
    assert clock.used_s() >= later_s
