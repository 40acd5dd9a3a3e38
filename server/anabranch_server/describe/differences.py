"""What differs between two snapshots of a model, as the admin port and `anabranch diff` tell it."""

from dataclasses import dataclass

__all__ = ["DifferenceView", "TableDifferenceView", "WeightDifferenceView"]


@dataclass(frozen=True, slots=True)
class TableDifferenceView:
    """A table that one of the snapshots has, or both.

    Attributes:
        name: of the table.
        added: keys that only the second snapshot has.
        changed: keys of both whose rows differ.
        removed: keys that only the first snapshot has.
        change_norm: Euclidean length of the change of the rows that both have; null where it is no
            finite number, or rows have different lengths.
    """

    name: str
    added: int
    changed: int
    removed: int
    change_norm: float | None


@dataclass(frozen=True, slots=True)
class WeightDifferenceView:
    """A weight of the graph that is no table.

    Attributes:
        name: of the weight.
        changed: numbers that differ; all of them where one snapshot lacks it, or shapes differ.
        change_norm: Euclidean length of the change; null where it cannot be said.
    """

    name: str
    changed: int
    change_norm: float | None


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """All tables and weights; those that do not differ have zeros.

    Attributes:
        tables: by name.
        dense: other weights, by name.
    """

    tables: list[TableDifferenceView]
    dense: list[WeightDifferenceView]
