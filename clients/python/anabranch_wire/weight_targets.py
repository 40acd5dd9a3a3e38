"""Where the optimiser put a weight of the original graph, so that a delta can bring a new one."""

import math
from typing import Literal

from anabranch_wire.document_fields import Count
from anabranch_wire.documents import Document
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_tensor_name

__all__ = ["SliceOrScale", "ToDense", "ToTable", "WeightTarget"]


class SliceOrScale(Document, frozen=True, kw_only=True, omit_defaults=True):
    """A transform with an argument: exactly one of the two is given.

    Attributes:
        slice: half-open range of axis 0 of the original.
        scale: finite factor on every element, not 0.
    """

    slice: tuple[Count, Count] | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        if (self.slice is None) == (self.scale is None):
            raise InvalidInput("expected exactly one of slice, scale")
        if self.slice is not None and self.slice[0] >= self.slice[1]:
            raise InvalidInput(f"slice {list(self.slice)}: expected [begin, end] with begin < end")
        if self.scale is not None and not (math.isfinite(self.scale) and self.scale):
            raise InvalidInput(f"scale {self.scale}: expected a finite number other than 0")


class ToTable(Document, frozen=True, kw_only=True, tag_field="to", tag="table"):
    """The weight became the rows of a table.

    Attributes:
        index: into the plan's tables.
    """

    index: Count


class ToDense(Document, frozen=True, kw_only=True, tag_field="to", tag="dense"):
    """The weight is an initializer of the dense (or user) graph.

    Attributes:
        name: of that initializer.
        transform: what turns the original into it.
    """

    name: str
    transform: Literal["none", "transpose"] | SliceOrScale

    def __post_init__(self) -> None:
        check_tensor_name(self.name)


WeightTarget = ToTable | ToDense
"""One place; in JSON an object whose `to` tells which kind."""
