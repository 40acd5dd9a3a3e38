"""`anabranch rows DIR TABLE KEY...`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from anabranch_server.commands.local_places import local_place

if TYPE_CHECKING:
    from anabranch_model_store.inspection import FoundRow

__all__ = ["rows"]

_SHOWN: Final = 8
"""Numbers of a row that people are shown."""


def rows(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Folder of a version, or of a model: its newest.",
            parser=local_place,
        ),
    ],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Name or alias of the table.")],
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Signed or unsigned 64-bit integers.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show rows of a table by key, from its file or the graph; it is read until all are found."""
    from anabranch_model_store.inspection import find_rows
    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError

    try:
        found = find_rows(folder, table, [_key(text) for text in keys])
    except AnabranchError as error:
        fail(error.message)
    if as_json:
        print_json({"rows": [_shown(row) for row in found]}, compact=True)
    else:
        _print_table(found)


def _key(text: str) -> int:
    from anabranch_server.commands.output import fail

    try:
        key = int(text)
    except ValueError:
        fail(f"{text!r}: no key; expected an integer", code=2)
    if not -(2**63) <= key < 2**64:
        fail(f"{text}: no key; expected 64 bits", code=2)
    return key


def _shown(row: "FoundRow") -> dict[str, Any]:
    return {
        "key": row.key,
        "found": row.values is not None,
        "values": [] if row.values is None else row.values.tolist(),
        "norm": _norm(row),
        "frequency": None,
        "step": None,
        "changed_by_delta": None,
    }


def _norm(row: "FoundRow") -> float | None:
    import numpy as np

    return None if row.values is None else float(np.linalg.norm(row.values))


def _print_table(found: list["FoundRow"]) -> None:
    from rich.table import Table
    from rich.text import Text

    from anabranch_server.trimmed import trimmed_console

    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("key", justify="right")
    shown.add_column("norm", justify="right")
    shown.add_column("values", overflow="fold")
    for row in found:
        norm = _norm(row)
        if row.values is None or norm is None:
            shown.add_row(str(row.key), "", Text("no row", style="red"))
            continue
        numbers = " ".join(f"{number:.6g}" for number in row.values[:_SHOWN])
        more = f" ... {len(row.values)} in all" if len(row.values) > _SHOWN else ""
        shown.add_row(str(row.key), f"{norm:.6g}", numbers + more)
    with trimmed_console(sys.stdout) as console:
        console.print(shown)
