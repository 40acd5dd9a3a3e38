"""Polynomials in sizes: exact arithmetic, and what can be said about their sign."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_graph_opt.sizes import ONE, ZERO, Atom, Size, product

N = Atom(1, "N", counts_rows=True, least=1)
L = Atom(2, "L")
ANY = Atom(3, "any", least=None)
ATOMS = (N, L, ANY)


def polynomials() -> st.SearchStrategy[Size]:
    terms = st.tuples(st.lists(st.sampled_from(ATOMS), max_size=2), st.integers(-4, 4))
    return st.lists(terms, max_size=4).map(
        lambda drawn: sum(
            (product([Size.of(factor), *map(Size.of, atoms)]) for atoms, factor in drawn), ZERO
        )
    )


def value(size: Size, at: dict[Atom, int]) -> int:
    total = 0
    for monomial, coefficient in size.terms:
        part = coefficient
        for atom in monomial:
            part *= at[atom]
        total += part
    return total


assignments = st.fixed_dictionaries(
    {N: st.integers(1, 9), L: st.integers(0, 9), ANY: st.integers(-9, 9)}
)


@given(polynomials(), polynomials(), assignments)
def test_arithmetic_agrees_with_numbers(a: Size, b: Size, at: dict[Atom, int]) -> None:
    assert value(a + b, at) == value(a, at) + value(b, at)
    assert value(a - b, at) == value(a, at) - value(b, at)
    assert value(a * b, at) == value(a, at) * value(b, at)


@given(polynomials(), polynomials())
def test_a_product_divided_by_a_factor_is_the_other_one(a: Size, b: Size) -> None:
    if b != ZERO:
        assert (a * b).over(b) == a


@given(polynomials(), polynomials())
def test_a_quotient_times_the_divisor_is_the_dividend(a: Size, b: Size) -> None:
    quotient = a.over(b)
    if quotient is not None:
        assert quotient * b == a


@given(polynomials(), assignments)
def test_values_lie_within_bounds(a: Size, at: dict[Atom, int]) -> None:
    low, high = a.bounds({})

    assert low is None or low <= value(a, at)
    assert high is None or value(a, at) <= high


def test_bounds_use_what_is_known_of_atoms() -> None:
    several = Size.of(N) - ONE

    assert several.bounds({}) == (0, None)
    assert several.bounds({N: 2}) == (1, None)


def test_there_is_no_quotient_that_is_no_polynomial() -> None:
    assert Size.of(N).over(Size.of(2)) is None
    assert (Size.of(N) + ONE).over(Size.of(N)) is None
    assert Size.of(N).over(ZERO) is None


@pytest.mark.parametrize(
    ("size", "text"),
    [(ZERO, "0"), (Size.of(N) * Size.of(5) + ONE, "5*N + 1"), (Size.of(L), "L")],
)
def test_sizes_read_like_formulas(size: Size, text: str) -> None:
    assert str(size) == text


def test_only_sizes_of_rows_count_rows() -> None:
    assert (Size.of(N) * Size.of(L)).counts_rows
    assert not Size.of(L).counts_rows
    assert Size.of(7).constant == 7
    assert Size.of(L).constant is None
