import itertools

from anabranch_server.launcher import RestartPolicy


def delays(lives_s: list[float]) -> list[float]:
    policy = RestartPolicy()
    ends = 0
    waits = []
    for life_s in lives_s:
        ends = policy.ends_in_a_row(ends, life_s)
        waits.append(policy.delay_s(ends))
    return waits


def test_a_first_end_is_followed_at_once_further_ones_later_and_later() -> None:
    assert delays([1.0] * 8) == [0, 0.5, 1, 2, 4, 8, 10, 10]


def test_a_long_life_makes_an_end_a_first_one_again() -> None:
    assert delays([1, 1, 1, 29.9, 30, 1, 31, 1]) == [0, 0.5, 1, 2, 0, 0.5, 0, 0.5]


def test_it_never_overflows() -> None:
    waits = delays(list(itertools.repeat(0.0, 5000)))

    assert waits[-1] == 10
    assert waits == sorted(waits)
