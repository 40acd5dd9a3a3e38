"""What one analysis of a model knows besides the claims on its values.

Owns everything that grows while the graph is walked: atoms, spaces, numbers of values, and the
assumptions that the final proof rests on.
"""

from collections.abc import Hashable
from dataclasses import replace

from anabranch_graph_opt.flow import Factor, Flow, Mixing, Space, axis
from anabranch_graph_opt.sizes import Atom, Size

__all__ = ["Facts", "relabelled"]


class Facts:
    """Mutable facts of one analysis; used by one thread.

    Attributes:
        rows: the space of the batch itself.
        min_rows: 2 as soon as a decision needed at least two rows, else 1.
        selects: whether rows were picked by their data somewhere.
        loops: how many loops the walk is inside.
        row_loop: the space that the innermost loop runs through, and the index it is at, where the
            loop takes one row after another.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._spaces: dict[Atom, list[Space]] = {}
        self._value_numbers: dict[Hashable, int] = {}
        self.min_rows = 1
        self.selects = False
        self.loops = 0
        self.row_loop: tuple[Space, Size] | None = None
        self.rows = Space(("rows", 0), self.atom("N", counts_rows=True, least=1))
        self._spaces[self.rows.atom] = [self.rows]

    def atom(self, name: str, counts_rows: bool = False, least: int | None = 0) -> Atom:
        """Return a new atom."""
        self._serial += 1
        return Atom(self._serial, name, counts_rows, least)

    def unknown(self, least: int | None = 0) -> Size:
        """Return an integer of which only is known that no row has a say in it."""
        return Size.of(self.atom(f"s{self._serial + 1}", least=least))

    def value_number(self, key: Hashable) -> int:
        """Return the same number for equal keys: equal values of one run get equal numbers."""
        return self._value_numbers.setdefault(key, len(self._value_numbers))

    def selected(self, mask: int) -> Space:
        """Return the space of the rows for which the scalar with number `mask` is not zero."""
        return self._space(("selected", mask), None)

    def sorted(self, source: Space, order: int) -> Space:
        """Return the space that holds the entries of `source` in an order given by their data."""
        return self._space(("sorted", order), source)

    def _space(self, key: tuple[str, int], source: Space | None) -> Space:
        if self.loops:
            raise Mixing("picks rows by their data inside a loop")
        for spaces in self._spaces.values():
            for space in spaces:
                if space.key == key:
                    return space
        self.selects = self.selects or source is None
        atom = source.atom if source is not None else self.atom("K", counts_rows=True)
        space = Space(key, atom, source)
        self._spaces.setdefault(atom, []).append(space)
        return space

    def factors(self, size: Size) -> tuple[Factor, ...]:
        """Return an axis of that size for content that is the same at each of its indices.

        Raises:
            Mixing: the size counts rows in a way that no axis can hold.
        """
        if not size.counts_rows:
            return axis([Factor(size)])
        if len(size.terms) == 1:
            ((monomial, coefficient),) = size.terms
            counting = [atom for atom in monomial if atom.counts_rows]
            if len(counting) == 1 and counting[0] in self._spaces and coefficient > 0:
                others = Size(((tuple(a for a in monomial if a != counting[0]), coefficient),))
                space = self._spaces[counting[0]][0]
                return axis([Factor(Size.of(space.atom), space), Factor(others)])
        raise Mixing(f"builds an axis of {size} entries, where N is the number of rows")

    def space_of_size(self, size: Size) -> Space | None:
        """Return the first space with exactly that many entries."""
        for atom, spaces in self._spaces.items():
            if Size.of(atom) == size:
                return spaces[0]
        return None

    def loop_index(self, space: Space | None) -> Size | None:
        """Index of the entry that a loop over the rows of `space` is at; None outside of one."""
        return self.row_loop[1] if self.row_loop is not None and self.row_loop[0] == space else None

    def within(self, index: Size, length: Size) -> bool:
        """Whether an axis of `length` surely has an entry `index`, counted from the front."""
        if self.row_loop is not None:
            space, at = self.row_loop
            past = (index - at).constant
            if past is not None and past >= 0:
                # The loop index is at most one below the number of entries.
                return self.positive(length - Size.of(space.atom) - Size.of(past - 1)) is True
        return (
            index.constant is not None
            and index.constant >= 0
            and bool(self.positive(length - index))
        )

    def positive(self, size: Size) -> bool | None:
        """Whether `size > 0`, for every batch; None where it varies.

        A question that only batches of one row leave open is answered for two rows and more, and
        `min_rows` says so from then on.
        """
        for rows in sorted({self.min_rows, 2}):
            low, high = size.bounds({self.rows.atom: rows})
            if (low is not None and low > 0) or (high is not None and high <= 0):
                self.min_rows = rows
                return low is not None and low > 0
        return None

    def zero(self, size: Size) -> bool | None:
        """Whether `size == 0`, for every batch; None where it varies. See `positive`."""
        if not size.terms:
            return True
        for rows in sorted({self.min_rows, 2}):
            low, high = size.bounds({self.rows.atom: rows})
            if (low is not None and low > 0) or (high is not None and high < 0):
                self.min_rows = rows
                return False
        return None


def relabelled(flow: Flow, space: Space) -> Flow | None:
    """The flow with its row factor in `space`, where it may stand there; else None."""
    own = flow.space
    if own == space:
        return flow
    if own is None or not flow.same or own.atom != space.atom:
        return None
    return replace(
        flow,
        axes=tuple(
            tuple(Factor(f.size, space) if f.space is not None else f for f in factors)
            for factors in flow.axes
        ),
    )
