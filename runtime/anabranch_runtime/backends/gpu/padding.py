"""Which shapes a graph is run with: those of a batch, rounded up where more rows change nothing.

A captured graph has one shape. Batches have any number of rows, so they are padded to the next of a
few bucket sizes; only where rows are proven independent of each other (`RowLayout`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Buckets", "Padding"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Numbers of rows that graphs are captured for.

    Attributes:
        sizes: rising, at least one.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.sizes or list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise ValueError(f"executors.buckets {list(self.sizes)}: expected rising numbers >= 1")

    def at_least(self, rows: int) -> int:
        """Return the number of rows to run `rows` rows with.

        More than the largest bucket are rounded up to a multiple of it, so that few different
        numbers come. For no row at all there is one of zeros.
        """
        largest = self.sizes[-1]
        if rows > largest:
            return -(-rows // largest) * largest
        return self.sizes[bisect_left(self.sizes, max(rows, 1))]


@dataclass(frozen=True, slots=True)
class Padding:
    """How the inputs and outputs of a graph grow.

    Attributes:
        inputs: per input the kind of rows that its first axis counts, None where it does not grow.
            All of one kind have the same number, "row" or "user".
        outputs: per output the same.
        buckets: per kind.
    """

    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    buckets: dict[str, Buckets]

    def padded(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shapes to run inputs of `shapes` with."""
        return tuple(
            [
                shape if kind is None else (self.buckets[kind].at_least(shape[0]), *shape[1:])
                for shape, kind in zip(shapes, self.inputs, strict=True)
            ]
        )

    def rows(self, shapes: Sequence[Shape]) -> dict[str, int]:
        """Return how many rows of each kind inputs of `shapes` have."""
        return {
            kind: shape[0]
            for shape, kind in zip(shapes, self.inputs, strict=True)
            if kind is not None
        }
