"""A bounded memory of what was asked for lately."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch_server.recent import RecentlyUsed


def test_what_was_put_is_found() -> None:
    recent = RecentlyUsed[str, int](4)

    recent.put("a", 1)

    assert recent.get("a") == 1
    assert recent.get("b") is None


def test_what_is_asked_for_all_the_time_is_never_lost() -> None:
    recent = RecentlyUsed[int, int](4)
    recent.put(-1, 7)

    for number in range(1000):
        recent.put(number, number)
        assert recent.get(-1) == 7


def test_what_is_not_asked_for_goes() -> None:
    recent = RecentlyUsed[int, int](4)
    recent.put(-1, 7)

    for number in range(8):
        recent.put(number, number)

    assert recent.get(-1) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=200))
def test_it_answers_what_was_put_last_and_stays_small(steps: list[tuple[bool, int]]) -> None:
    recent, plain = RecentlyUsed[int, int](5), dict[int, int]()

    for number, (is_put, key) in enumerate(steps):
        if is_put:
            recent.put(key, number)
            plain[key] = number
        else:
            assert recent.get(key) in (None, plain.get(key))
        assert len(recent) <= 10
