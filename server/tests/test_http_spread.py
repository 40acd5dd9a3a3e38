import random

import pytest

from anabranch_server.http.spread import HISTORY, best_place, surplus

ALL = [True] * 4


def test_an_even_spread_is_left_alone() -> None:
    assert best_place([4, 3, 3, 3], ALL, 0) == 0


def test_a_fresh_connection_goes_to_the_fewest() -> None:
    assert best_place([5, 4, 3, 4], ALL, 0) == 2


def test_one_fewer_is_what_moving_would_only_turn_round() -> None:
    assert best_place([5, 4, 4, 4], ALL, 0) == 0


def test_of_equal_ones_the_next_in_the_round_is_chosen() -> None:
    assert best_place([9, 3, 3, 3], ALL, 0) == 1
    assert best_place([3, 9, 3, 3], ALL, 1) == 2
    assert best_place([3, 3, 3, 9], ALL, 3) == 0


def test_who_takes_none_gets_none() -> None:
    assert best_place([9, 0, 5, 5], [True, False, True, True], 0) == 2


def test_who_takes_none_keeps_none_as_long_as_anybody_takes_one() -> None:
    assert best_place([1, 7, 5, 6], [False, True, True, True], 0) == 2
    assert best_place([1, 7, 5, 6], [False] * 4, 0) == 0


def test_a_single_worker_keeps_everything() -> None:
    assert best_place([7], [True], 0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_fresh_connections_even_out(seed: int) -> None:
    rng = random.Random(seed)
    loads = [rng.randrange(20) for _ in range(6)]
    for _ in range(200):
        at = rng.randrange(6)
        loads[at] += 1
        to = best_place(loads, [True] * 6, at)
        loads[at] -= 1
        loads[to] += 1
    assert max(loads) - min(loads) <= 1


def history(*queues: int) -> list[list[int]]:
    return [list(queues)] * HISTORY


LOADS = [10, 10, 10, 10]


def test_the_longest_queue_gives_up_a_connection() -> None:
    assert surplus(history(20, 2, 2, 2), LOADS, ALL, 0) == 1
    assert surplus(history(20, 2, 2, 2), LOADS, ALL, 1) == 0


def test_many_connections_give_up_more_but_a_bounded_number() -> None:
    assert surplus(history(400, 2, 2, 2), [320] * 4, ALL, 0) == 11


def test_it_has_to_stay_the_longest() -> None:
    assert surplus(history(20, 2, 2, 2)[1:], LOADS, ALL, 0) == 0
    for queues in ([2, 2, 2, 2], [20, 21, 2, 2], [3, 0, 0, 0]):
        broken = history(20, 2, 2, 2)
        broken[4] = queues
        assert surplus(broken, LOADS, ALL, 0) == 0


def test_a_little_longer_is_no_reason() -> None:
    assert surplus(history(12, 10, 10, 10), LOADS, ALL, 0) == 0


def test_the_only_connection_stays_since_the_trouble_would_come_along() -> None:
    assert surplus(history(50, 0, 0, 0), [1, 10, 10, 10], ALL, 0) == 0
    assert surplus(history(50, 0, 0, 0), [2, 10, 10, 10], ALL, 0) == 1
    assert surplus(history(50, 0, 0, 0), [0, 10, 10, 10], ALL, 0) == 0


def test_who_takes_no_connections_does_not_count() -> None:
    assert surplus(history(20, 0, 19, 19), LOADS, [True, False, True, True], 0) == 0
    assert surplus(history(20, 0, 0, 0), LOADS, [True, False, False, False], 0) == 0
