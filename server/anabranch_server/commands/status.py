"""`anabranch status [MODEL] --admin URL`."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

__all__ = ["status"]

_View = Mapping[str, Any]


def status(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only this one.")] = None,
    admin: Annotated[
        str, typer.Option(envvar="ANABRANCH_ADMIN_URL", help="The server's admin port.")
    ] = "http://127.0.0.1:8003",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which models and versions a server has, and what went wrong."""
    from urllib.parse import quote

    from anabranch_server.commands.following import check_admin
    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.output import fail, print_json

    place = "/admin/v1/models"
    asked = call(admin, place if model is None else f"{place}/{quote(model, safe='')}")
    shown = check_admin(admin, asked).value
    if as_json:
        print_json(shown, compact=True)
        return
    if not isinstance(shown, dict):
        fail(f"{admin} does not answer as an anabranch server does")
    models = shown.get("models", []) if model is None else [shown]
    if not models:
        print("the repository has no model")
        return
    _print_table(models, time.time())


def _print_table(models: Sequence[_View], now: float) -> None:
    """Print a row for each model; columns that no model needs are left out."""
    from rich.table import Table
    from rich.text import Text

    from anabranch_server.trimmed import trimmed_console

    columns: dict[str, Callable[[_View], str]] = {
        "model": lambda model: str(model["name"]),
        "state": lambda model: str(model["state"]),
        "serves": lambda model: _snapshots(model, kept=False),
        "kept": lambda model: _snapshots(model, kept=True),
        "held at": lambda model: str(model["pinned"] or ""),
        "labels": _labels,
        "data": lambda model: _freshness(model, now),
        "last error": _failure,
    }
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = {head: [text(model) for model in models] for head, text in columns.items()}
    for head in [head for head, texts in cells.items() if not any(texts)]:
        del cells[head]
    for head in cells:
        table.add_column(head, overflow="fold")
    for texts in zip(*cells.values(), strict=True):
        row = [Text(text) for text in texts]
        row[1].stylize("green" if texts[1] == "READY" else "red")
        table.add_row(*row)
    with trimmed_console(sys.stdout) as console:
        console.print(table)


def _snapshots(model: _View, *, kept: bool) -> str:
    """Snapshots that are kept, or the others, with their state where it is not READY."""
    shown = []
    for one in model["versions"]:
        if bool(one.get("kept")) != kept:
            continue
        snapshot = f"{one['version']}+{one['delta']}" if one["delta"] else str(one["version"])
        quiet = kept or one["state"] == "READY"
        shown.append(snapshot if quiet else f"{snapshot} ({one['state'].lower()})")
    return ", ".join(shown)


def _labels(model: _View) -> str:
    return ", ".join(f"{name}={version}" for name, version in sorted(model["labels"].items()))


def _freshness(model: _View, now: float) -> str:
    """Age of the newest event that the newest served version was trained on."""
    from anabranch_server.ages import age

    for one in model["versions"]:
        if one["state"] == "READY" and not one.get("kept"):
            event_time = one["event_time"]
            return "" if event_time is None else f"{age(now - event_time)} old"
    return ""


def _failure(model: _View) -> str:
    failure = model["last_error"]
    if failure is None:
        return ""
    version, delta, error = failure["version"], failure["delta"], str(failure["error"])
    if version is None:
        return error
    if delta is None or error.startswith("delta "):
        return f"version {version}: {error}"
    return f"version {version}, delta {delta}: {error}"
