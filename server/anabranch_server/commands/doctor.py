"""`anabranch doctor`."""

import os
import sys
from typing import Annotated

import typer

__all__ = ["doctor"]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether this machine can run a server, and how well."""
    import msgspec
    from rich.table import Table

    from anabranch_server.commands.output import print_json
    from anabranch_server.config import Folders
    from anabranch_server.doctor import examine
    from anabranch_server.folders import default_cache_dir, default_run_dir, default_state_dir
    from anabranch_server.trimmed import trimmed_console

    folders = Folders(
        default_cache_dir(os.environ),
        default_state_dir(os.environ).parent,
        default_run_dir(os.environ),
    )
    report = examine(folders)
    if as_json:
        print_json(msgspec.to_builtins(report), compact=True)
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in report.checks:
            colour = {"ok": "green", "warning": "yellow", "failure": "red"}[check.status]
            found = f"{check.found}\n{check.remedy}" if check.remedy else check.found
            table.add_row(check.name, f"[{colour}]{check.status}[/]", found)
        with trimmed_console(sys.stdout) as console:
            console.print(table)
    raise typer.Exit(0 if report.ok else 1)
