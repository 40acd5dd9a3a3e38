"""Tables and rows: what lookups of a model read."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import FastAPI, Query

from anabranch_server.administration import Administration, RowView, TableView
from anabranch_server.app.openapi import error_responses
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable

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
