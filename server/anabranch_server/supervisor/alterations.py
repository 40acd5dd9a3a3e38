"""What may change in the rows of a version that is served: values that a switch carries along."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch_runtime.store import Capacity, Growth
from anabranch_runtime.store import Change as RowChange
from anabranch_wire.errors import Unavailable

__all__ = ["Alteration", "Growing", "NoRoom", "Rewriting"]


class NoRoom(Unavailable):
    """A change does not fit into the generation that it was meant for.

    Attributes:
        version: number of the version whose rows they are; None where that is not known.
    """

    def __init__(self, message: str, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True, eq=False)
class Rewriting:
    """Rows are updated, inserted and deleted.

    Attributes:
        version: number of the version whose rows they are.
        fill: says which; called in a thread of its own, with a change that takes upserts and
            deletes. What it raises refuses the switch.
    """

    version: int
    fill: Callable[[RowChange], None]


@dataclass(frozen=True, slots=True, eq=False)
class Growing:
    """The same rows move to a generation with more room.

    Attributes:
        version: number of the version whose rows they are.
        number: of the generation that they move from.
        growth: has copied everything but what changed last.
        capacities: of each table there.
    """

    version: int
    number: int
    growth: Growth
    capacities: Sequence[Capacity]


Alteration = Rewriting | Growing
