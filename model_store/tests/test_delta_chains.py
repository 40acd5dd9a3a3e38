"""Chains of deltas: as short as any that there is, with few headers read."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.chains import Chain, shortest_chain
from anabranch_model_store.deltas.delta_folders import DeltaNumbers


def shortest(applied: int, upto: int, found: dict[int, int]) -> dict[int, int]:
    """Return state -> fewest deltas that lead to it, tried one by one."""
    lengths = {applied: 0}
    for number in range(applied + 1, upto + 1):
        if number in found:
            before = [n for state, n in lengths.items() if found[number] - 1 <= state < number]
            if before:
                lengths[number] = min(before) + 1
    return lengths


@settings(max_examples=200)
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

    dead = data.draw(st.sets(st.integers(1, upto)))

    def candidates(first: int, last: int) -> list[int]:
        return [number for number in sorted(numbers | dead) if first <= number <= last]

    if data.draw(st.booleans()):
        chain = shortest_chain(applied, upto, replaces_from)
    else:
        chain = shortest_chain(applied, upto, replaces_from, numbers=candidates)

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


@settings(max_examples=100)
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


def test_gaps_of_millions_are_not_walked_through() -> None:
    found = {1: 1, 2: 2, 50_000_000: 7, 99_999_999: 99_999_998}
    read: list[int] = []

    def replaces_from(number: int) -> int | None:
        read.append(number)
        return found.get(number)

    def numbers(first: int, last: int) -> list[int]:
        return [number for number in found if first <= number <= last]

    chain = shortest_chain(0, 99_999_999, replaces_from, numbers=numbers)

    assert chain == Chain((1, 2), missing=3)
    assert set(read) <= set(found)


def test_many_numbers_are_those_that_are_listed(tmp_path: Path) -> None:
    for name in ("00000001", "00000007", "99999999", "x", "0000001", "000000001"):
        (tmp_path / "deltas" / name).mkdir(parents=True)
    numbers = DeltaNumbers(tmp_path)

    assert list(numbers.between(1, 99_999_999)) == [1, 7, 99_999_999]
    assert list(numbers.between(2, 99_999_998)) == [7]
    assert list(numbers.between(8, 99_999_998)) == []
    assert list(numbers.between(5, 8)) == [5, 6, 7, 8]


def test_without_a_folder_of_deltas_there_are_no_numbers(tmp_path: Path) -> None:
    assert not DeltaNumbers(tmp_path).between(1, 99_999_999)
