"""Chains of deltas: as short as any that there is, with few headers read."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.chains import Chain, shortest_chain


def shortest(applied: int, upto: int, found: dict[int, int]) -> dict[int, int]:
    """Return state -> fewest deltas that lead to it, tried one by one."""
    lengths = {applied: 0}
    for number in range(applied + 1, upto + 1):
        if number in found:
            before = [n for state, n in lengths.items() if found[number] - 1 <= state < number]
            if before:
                lengths[number] = min(before) + 1
    return lengths


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_chain_is_shorter_and_none_comes_farther(data: st.DataObject) -> None:
    upto = data.draw(st.integers(1, 14))
    applied = data.draw(st.integers(0, upto))
    numbers = data.draw(st.sets(st.integers(1, upto)))
    found = {n: data.draw(st.integers(1, n)) for n in sorted(numbers)}
    read: list[int] = []

    def replaces_from(number: int) -> int | None:
        read.append(number)
        return found.get(number)

    chain = shortest_chain(applied, upto, replaces_from)

    lengths = shortest(applied, upto, found)
    reached = chain.deltas[-1] if chain.deltas else applied
    assert len(read) == len(set(read))
    assert len(chain.deltas) == lengths[reached]
    assert reached == max(lengths)
    at = applied
    for number in chain.deltas:
        assert found[number] - 1 <= at < number
        at = number
    if reached == upto:
        assert chain.missing is None
    else:
        assert chain.missing is not None
        assert chain.missing not in found
        assert reached < chain.missing <= upto


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_few_looks_find_a_chain_where_there_is_one(data: st.DataObject) -> None:
    upto = data.draw(st.integers(1, 14))
    numbers = data.draw(st.sets(st.integers(1, upto)))
    found = {n: data.draw(st.integers(1, n)) for n in sorted(numbers)}

    chain = shortest_chain(0, upto, found.get, looks=1)

    reached = chain.deltas[-1] if chain.deltas else 0
    assert reached == max(shortest(0, upto, found))


def test_only_headers_of_used_deltas_are_read_where_none_replaces_another() -> None:
    read: list[int] = []

    def plain(number: int) -> int:
        read.append(number)
        return number

    assert shortest_chain(86_390, 86_400, plain) == Chain(tuple(range(86_391, 86_401)))
    assert read == list(range(86_400, 86_390, -1))


def test_a_cumulative_delta_takes_one_look() -> None:
    read: list[int] = []

    def cumulative(number: int) -> int:
        read.append(number)
        return 1

    assert shortest_chain(0, 86_400, cumulative) == Chain((86_400,))
    assert read == [86_400]


def test_the_first_number_in_the_way_is_the_one_that_is_missing() -> None:
    found = {1: 1, 2: 2, 4: 4, 6: 6}
    assert shortest_chain(0, 6, found.get) == Chain((1, 2), missing=3)
    assert shortest_chain(2, 6, found.get) == Chain((), missing=3)
    assert shortest_chain(4, 6, found.get) == Chain((), missing=5)
    assert shortest_chain(6, 6, found.get) == Chain(())
