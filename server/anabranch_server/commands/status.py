"""`anabranch status [MODEL] --admin URL`."""

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

__all__ = ["status"]


def status(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only this one.")] = None,
    admin: Annotated[
        str, typer.Option(envvar="ANABRANCH_ADMIN_URL", help="The server's admin port.")
    ] = "http://127.0.0.1:8003",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which models and versions a server has, and what went wrong."""
    from urllib.parse import quote

    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.output import fail, print_json

    place = "/admin/v1/models"
    answer = call(admin, place if model is None else f"{place}/{quote(model, safe='')}")
    if not answer.ok:
        misled = answer.error.startswith("no such route")
        fail(f"{admin} is not the admin port: {answer.error}" if misled else answer.error)
    if as_json:
        print_json(answer.value, compact=True)
        return
    shown = answer.value
    if not isinstance(shown, dict):
        fail(f"{admin} does not answer as an anabranch server does")
    _print_table(shown.get("models", []) if model is None else [shown])


def _print_table(models: list[Mapping[str, object]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from anabranch_server.trimmed import trimmed_console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("model", "state", "snapshots", "labels", "last error"):
        table.add_column(column, overflow="fold")
    for model in models:
        colour = "green" if model["state"] == "READY" else "red"
        table.add_row(
            Text(str(model["name"])),
            Text(str(model["state"]), colour),
            Text(_snapshots(model["versions"])),
            Text(_labels(model["labels"])),
            Text(_failure(model["last_error"])),
        )
    with trimmed_console(sys.stdout) as console:
        console.print(table)


def _snapshots(versions: object) -> str:
    assert isinstance(versions, list)
    return ", ".join(
        f"{one['version']}+{one['delta']}" if one["delta"] else str(one["version"])
        for one in versions
    )


def _labels(labels: object) -> str:
    assert isinstance(labels, dict)
    return ", ".join(f"{name}={version}" for name, version in sorted(labels.items()))


def _failure(failure: object) -> str:
    if not isinstance(failure, dict):
        return ""
    version = failure["version"]
    return str(failure["error"]) if version is None else f"version {version}: {failure['error']}"
