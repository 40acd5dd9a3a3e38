"""What is known about one value of a graph: where its rows are, and that they do not mix.

A `Flow` is a claim about a tensor, for every batch of rows that the model may be given:

- Each axis is a product of factors in row-major order. At most one factor of the whole tensor
  counts rows; it names the `Space` whose entries it runs through.
- The elements at entry j of that factor depend on nothing but row j of the space (its inputs, the
  weights, and sizes that no row has a say in).
- All other factors have sizes that no row has a say in.
- A tensor without such a factor is the same whatever rows the batch holds, unless `current`.

`Mixed` makes no claim. A claim is only ever given up, never guessed: what a rule does not
understand is mixed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from anabranch_graph_opt.sizes import ONE, Atom, Size, product

__all__ = [
    "SCALAR",
    "Axis",
    "Comparison",
    "Factor",
    "Flow",
    "Mixed",
    "Mixing",
    "NumberKind",
    "Numbers",
    "Pointer",
    "RowList",
    "Space",
    "State",
    "Steps",
    "ValueList",
    "axis",
    "axis_size",
    "plain",
    "pointer",
    "space_of",
]


class Mixing(Exception):
    """Raised by a rule: this node's outputs carry no claim.

    Attributes:
        phrase: completes "node X (Op) ...".
        inherited: the cause of a mixed input, which then is the cause here too.
    """

    def __init__(self, phrase: str, inherited: str | None = None) -> None:
        super().__init__(phrase)
        self.phrase = phrase
        self.inherited = inherited


@dataclass(frozen=True, slots=True)
class Space:
    """An arrangement of rows: which row stands at each index of an axis.

    Attributes:
        key: tells spaces apart; equal keys stand for the same arrangement in every batch.
        atom: its number of entries.
        sorted_from: the space whose entries, all of them, this one holds in another order.
    """

    key: tuple[str, int]
    atom: Atom
    sorted_from: "Space | None" = None


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of an axis.

    Attributes:
        size: number of indices.
        space: what the indices run through where they count rows; then `size` is its atom.
    """

    size: Size
    space: Space | None = None


Axis = tuple[Factor, ...]
"""Row-major factors: no factor of size 1, no two plain ones in a row. Empty: an axis of size 1."""


NumberKind = Literal["bool", "int", "float"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The elements are these integers (booleans as 0 and 1), in row-major order.

    Attributes:
        values: the elements.
        kind: of the tensor that holds them: division keeps fractions in a float, and a bool keeps
            nothing but whether a number is 0.
    """

    values: tuple[Size, ...]
    kind: NumberKind = "int"


@dataclass(frozen=True, slots=True)
class Steps:
    """Elements are `first + step * index`, repeated along all but one axis.

    The index runs along the row factor. Without one it runs along the only axis of size not 1,
    whose length then may count rows without holding them: the N + 1 starts and ends of N bags.
    """

    first: Size
    step: Size


@dataclass(frozen=True, slots=True)
class Pointer:
    """Elements are indices of entries: at entry j, where the row of j stands in another space.

    Attributes:
        into: the spaces pointed into; None for ordinary numbers. One entry where `along` is None,
            else one for each index of axis `along`.
        along: the axis that tells coordinates apart, as in the indices of GatherND.
    """

    into: tuple[Space | None, ...]
    along: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The one element says whether `left < right`."""

    left: Size
    right: Size


@dataclass(frozen=True, slots=True)
class Flow:
    """The claim of this module about a tensor.

    Attributes:
        axes: one entry an axis.
        current: in the body of a loop over rows: depends on the row the loop is at.
        same: every row has the same content, so the row factor may stand for any space of its size.
        meaning: what the elements are beyond data. Values whose meaning counts rows are no data.
        number: a number that equal per-row scalars share: the content at entry j is one scalar,
            repeated over all other factors. None where it is not.
        comparison: for the condition of loops.
    """

    axes: tuple[Axis, ...]
    current: bool = False
    same: bool = False
    meaning: Numbers | Steps | Pointer | None = None
    number: int | None = None
    comparison: Comparison | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.axes)

    @property
    def row_axis(self) -> int | None:
        """The axis that holds the row factor."""
        return next((i for i, a in enumerate(self.axes) if space_of(a) is not None), None)

    @property
    def space(self) -> Space | None:
        """The space of the row factor."""
        return next((space for a in self.axes if (space := space_of(a)) is not None), None)

    @property
    def numbers(self) -> tuple[Size, ...] | None:
        """The elements, where they are known integers."""
        return self.meaning.values if isinstance(self.meaning, Numbers) else None

    @property
    def kind(self) -> NumberKind | None:
        """Kind of the known integers; None where elements are not known."""
        return self.meaning.kind if isinstance(self.meaning, Numbers) else None

    @property
    def constants(self) -> tuple[int, ...] | None:
        """The elements, where they are integers that never change."""
        if self.numbers is None:
            return None
        values = [value.constant for value in self.numbers]
        return tuple(value for value in values if value is not None) if None not in values else None

    @property
    def is_data(self) -> bool:
        """Whether the elements themselves are covered by the claim, whatever is done with them."""
        if self.numbers is not None:
            return not any(value.counts_rows for value in self.numbers)
        return self.meaning is None

    def with_axes(self, axes: Iterable[Axis]) -> "Flow":
        """The same content, arranged in other axes; meaning is kept, `along` is the caller's."""
        return replace(self, axes=tuple(axes))


@dataclass(frozen=True, slots=True)
class Mixed:
    """No claim, and why: `cause` completes "output y is not row independent: ..."."""

    cause: str


@dataclass(frozen=True, slots=True)
class ValueList:
    """An ONNX sequence of known length."""

    items: tuple["State", ...]


@dataclass(frozen=True, slots=True)
class RowList:
    """An ONNX sequence with one item for each entry of a space, in order; `item` is `current`."""

    space: Space
    item: Flow


State = Flow | Mixed | ValueList | RowList

SCALAR: Final = Flow(())
"""A scalar that is the same for every batch."""


def axis(factors: Iterable[Factor]) -> Axis:
    """Normal form of a product of factors."""
    result: list[Factor] = []
    for factor in factors:
        if factor.size == ONE and factor.space is None:
            continue
        if result and factor.space is None and result[-1].space is None:
            result[-1] = Factor(result[-1].size * factor.size)
        else:
            result.append(factor)
    return tuple(result)


def pointer(into: tuple[Space | None, ...], along: int | None = None) -> Pointer | None:
    """The meaning of elements that point into these spaces; None where none of them does."""
    return Pointer(into, along) if any(space is not None for space in into) else None


def plain(size: int | Atom | Size) -> Axis:
    """An axis of one factor that holds no rows."""
    return axis([Factor(Size.of(size))])


def axis_size(factors: Sequence[Factor]) -> Size:
    """Number of indices of an axis."""
    return product(factor.size for factor in factors)


def space_of(factors: Axis) -> Space | None:
    """The space of an axis's row factor."""
    return next((factor.space for factor in factors if factor.space is not None), None)
