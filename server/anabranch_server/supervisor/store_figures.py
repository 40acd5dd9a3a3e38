"""How a store stands, for whoever shows it and whoever makes room."""

from dataclasses import dataclass
from typing import Self

from anabranch_runtime.store import StoreBytes, StoreWriter, TableStats

__all__ = ["StoreFigures", "table_stats"]


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """A value of its own.

    Attributes:
        tables: of each table.
        memory: of its newest generation.
        huge_pages: share of that memory in huge pages.
    """

    tables: tuple[TableStats, ...]
    memory: StoreBytes
    huge_pages: float

    @classmethod
    def of(cls, writer: StoreWriter, tables: int) -> Self:
        """Look at a generation with so many tables, on which nothing else is at work."""
        return cls(
            table_stats(writer, tables),
            writer.memory(),
            writer.huge_page_ratio(),
        )


def table_stats(writer: StoreWriter, tables: int) -> tuple[TableStats, ...]:
    """Return what each of so many tables holds, while nothing else is at work on them."""
    return tuple(writer.stats(index) for index in range(tables))
