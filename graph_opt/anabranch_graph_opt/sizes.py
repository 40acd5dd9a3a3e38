"""Sizes as polynomials: the integers that a graph computes from the shapes of its inputs.

`Size` is exact. Two sizes are equal for every request exactly when they compare equal, because an
atom stands for an integer that nothing else in the analysis fixes. That is what makes it safe to
tell an axis of N rows from an axis that merely happens to have the same size in one run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["ONE", "ZERO", "Atom", "Size", "product"]


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """An integer that varies between requests.

    Attributes:
        serial: tells atoms apart; no two atoms of one analysis share it.
        name: for messages.
        counts_rows: whether it changes with the rows of a batch: their number, how many of them a
            mask selects, the index of the row that a loop is at.
        least: smallest value it can have; None where it may be negative.
    """

    serial: int
    name: str
    counts_rows: bool = False
    least: int | None = 0


Monomial = tuple[Atom, ...]
"""Atoms in ascending order, each as often as its power."""


@dataclass(frozen=True, slots=True)
class Size:
    """An integer polynomial in atoms.

    Attributes:
        terms: (monomial, coefficient) in ascending order; no coefficient is 0.
    """

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(value: "int | Atom | Size") -> "Size":
        """The polynomial of a number or of one atom."""
        if isinstance(value, Size):
            return value
        if isinstance(value, Atom):
            return Size((((value,), 1),))
        return Size((((), value),) if value else ())

    @property
    def constant(self) -> int | None:
        """The number, where the polynomial is one."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    @property
    def counts_rows(self) -> bool:
        """Whether the value changes with the rows of a batch."""
        return any(atom.counts_rows for monomial, _ in self.terms for atom in monomial)

    def __add__(self, other: "Size") -> "Size":
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _size(total)

    def __neg__(self) -> "Size":
        return Size(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: "Size") -> "Size":
        return self + -other

    def __mul__(self, other: "Size") -> "Size":
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right))
                total[monomial] = total.get(monomial, 0) + a * b
        return _size(total)

    def over(self, divisor: "Size") -> "Size | None":
        """The exact quotient as a polynomial; None where there is none, or for a divisor of 0."""
        if not divisor.terms:
            return None
        quotient, rest = ZERO, self
        lead, scale = divisor.terms[-1]
        while rest.terms:
            monomial, coefficient = rest.terms[-1]
            factor = _without(monomial, lead)
            if factor is None or coefficient % scale:
                return None
            part = Size(((factor, coefficient // scale),))
            quotient, rest = quotient + part, rest - part * divisor
        return quotient

    def bounds(self, least: Mapping[Atom, int]) -> tuple[int | None, int | None]:
        """Smallest and largest value; None where there is no bound.

        Args:
            least: atoms that are known to be larger than they say themselves.
        """
        shifted = ZERO
        for monomial, coefficient in self.terms:
            part = Size.of(coefficient)
            for atom in monomial:
                lower = least.get(atom, atom.least)
                if lower is None:
                    return None, None
                part = part * (Size.of(atom) + Size.of(lower))
            shifted = shifted + part
        constant, growing, falling = 0, False, False
        for monomial, coefficient in shifted.terms:
            if not monomial:
                constant = coefficient
            else:
                growing, falling = growing or coefficient > 0, falling or coefficient < 0
        return None if falling else constant, None if growing else constant

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        return " + ".join(_term_text(*term) for term in reversed(self.terms))


ZERO: Final = Size(())
ONE: Final = Size.of(1)


def product(sizes: Iterable[Size]) -> Size:
    """The product; 1 for none."""
    result = ONE
    for size in sizes:
        result = result * size
    return result


def _order(monomial: Monomial) -> tuple[int, Monomial]:
    """Graded order: it is preserved by multiplication, so exact division ends."""
    return (len(monomial), monomial)


def _size(terms: Mapping[Monomial, int]) -> Size:
    kept = [(monomial, coefficient) for monomial, coefficient in terms.items() if coefficient]
    return Size(tuple(sorted(kept, key=lambda term: _order(term[0]))))


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _term_text(monomial: Monomial, coefficient: int) -> str:
    names = [atom.name for atom in monomial]
    if coefficient != 1 or not names:
        names.insert(0, str(coefficient))
    return "*".join(names)
