"""`anabranch diff A B`, `anabranch diff MODEL A B`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from anabranch_server.describe.differences import (
        DifferenceView,
        TableDifferenceView,
        WeightDifferenceView,
    )

__all__ = ["diff"]

_NOT_FOUND: Final = 404
_WAIT_S: Final = 330.0
"""A little more than a server takes at most."""


def diff(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="[DIR/MODEL] A B",
            help="Two snapshots as DIR/MODEL/42 or DIR/MODEL/42+17; or a folder or URL of a model "
            "(with --admin: its name) and two snapshots of it, as 42 or 42+17.",
        ),
    ],
    admin: Annotated[
        str | None, typer.Option(help="Ask the server with this admin port.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which rows and weights differ between two snapshots of a model, or of two models."""
    from dataclasses import asdict

    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError, InvalidInput

    if len(places) not in (2, 3):
        fail(f"expected A B or DIR/MODEL A B, found {len(places)} arguments", code=2)
    try:
        shown = _read(places) if admin is None else _asked(admin, places)
    except AnabranchError as error:
        fail(error.message, code=2 if isinstance(error, InvalidInput) else 1)
    if as_json:
        print_json(asdict(shown), compact=True)
    else:
        _print(shown)


def _read(places: Sequence[str]) -> "DifferenceView":
    """Compare what lies in folders or at URLs."""
    from anabranch_model_store.differences.snapshot_places import split_place
    from anabranch_server.differences.reading import read_difference

    if len(places) == 3:
        model, *snapshots = places
        pairs = [(model, one) for one in snapshots]
    else:
        pairs = [split_place(one) for one in places]
    return read_difference(*pairs)


def _asked(admin: str, places: Sequence[str]) -> "DifferenceView":
    """Have a server compare snapshots of one of its models."""
    from urllib.parse import quote, urlencode

    import msgspec

    from anabranch_server.commands.following import check_admin, only_model
    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.output import fail
    from anabranch_server.describe.differences import DifferenceView

    *model, before, after = places
    name = quote(model[0] if model else only_model(admin), safe="")
    query = urlencode({"a": before, "b": after})
    place = f"/admin/v1/models/{name}/diff?{query}"
    answer = call(admin, place, timeout_s=_WAIT_S)
    if answer.status == _NOT_FOUND and "no such file" in answer.error:
        fail(
            f"{answer.error}: where the server's repository is a URL, it has not all files of "
            f"every version; name the URL instead: anabranch diff URL/{name} {before} {after}"
        )
    try:
        return msgspec.convert(check_admin(admin, answer).value, DifferenceView)
    except msgspec.ValidationError:
        fail(f"{admin} does not answer as an anabranch server does")


def _print(shown: "DifferenceView") -> None:
    """Print what differs, and how much does not."""
    tables = [one for one in shown.tables if one.added or one.changed or one.removed]
    dense = [one for one in shown.dense if one.changed]
    if tables:
        _print_table("table", ("added", "changed", "removed"), tables)
    if dense:
        _print_table("weight", ("changed",), dense)
    same = len(shown.tables) - len(tables), len(shown.dense) - len(dense)
    print(f"the same: {same[0]} tables, {same[1]} other weights")


def _print_table(
    what: str,
    columns: Sequence[str],
    rows: "Sequence[TableDifferenceView] | Sequence[WeightDifferenceView]",
) -> None:
    from rich.table import Table
    from rich.text import Text

    from anabranch_server.trimmed import trimmed_console

    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column(what, overflow="fold")
    for column in (*columns, "norm of the change"):
        shown.add_column(column, justify="right")
    for row in rows:
        norm = row.change_norm
        numbers = [str(getattr(row, column)) for column in columns]
        shown.add_row(Text(row.name), *numbers, "" if norm is None else f"{norm:.6g}")
    with trimmed_console(sys.stdout) as console:
        console.print(shown)
