"""Tables and rows: what lookups of a model read, and what snapshots change of them."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import FastAPI, Query

from anabranch_server.administration import Administration, RowView, TableView
from anabranch_server.app.openapi import error_responses
from anabranch_server.describe.differences import DifferenceView
from anabranch_wire.errors import (
    Conflict,
    Corrupt,
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
)

__all__ = ["add_tables"]

_MOST_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a model.

    Attributes:
        tables: of the version that answers by default.
    """

    tables: list[TableView]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table.

    Attributes:
        rows: one for each key, in the order of the call.
    """

    rows: list[RowView]


def add_tables(app: FastAPI, administration: Administration) -> None:
    """Add the routes."""

    @app.get(
        "/admin/v1/models/{model}/tables",
        tags=["Tables"],
        summary="The tables of a model",
        description="Those of the version that answers by default. What was found and missed is "
        "counted since the start, over all workers and versions.",
        operation_id="tables",
        responses=error_responses(NotFound, Unavailable),
    )
    async def tables(model: str) -> Tables:
        return Tables(list(await administration.tables(model)))

    @app.get(
        "/admin/v1/models/{model}/tables/{table:path}/rows",
        tags=["Tables"],
        summary="Rows of a table",
        description="As requests read them now, in float32. A signed key and the unsigned one of "
        "the same 64 bits are one key.",
        operation_id="rows",
        responses=error_responses(InvalidInput, NotFound, Unavailable),
    )
    async def rows(
        model: str,
        table: str,
        key: Annotated[
            list[int],
            Query(min_length=1, max_length=_MOST_KEYS, description="A key, or several."),
        ],
    ) -> Rows:
        return Rows(list(await administration.rows(model, table, key)))

    @app.get(
        "/admin/v1/models/{model}/diff",
        tags=["Tables"],
        summary="What differs between two snapshots",
        description="Rows that the second one has added, changed and removed, table by table, and "
        "other weights that changed. Read from the repository, as published; that takes a while "
        "for large tables, five minutes at most. One comparison is at work at a time.",
        operation_id="diff",
        responses=error_responses(
            InvalidInput,
            NotFound,
            Conflict,
            TooLarge,
            Corrupt,
            Unsupported,
            Unavailable,
            DeadlineExceeded,
        ),
    )
    async def diff(
        model: str,
        a: Annotated[str, Query(description="The first snapshot, such as 42.")],
        b: Annotated[str, Query(description="The second one, such as 42+17 (sent as 42%2B17).")],
    ) -> DifferenceView:
        return await administration.diff(model, a, b)
