"""`anabranch inspect DIR|SEGMENT`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from anabranch_server.commands.local_places import local_place

if TYPE_CHECKING:
    from anabranch_model_store.inspection import ModelFacts
    from anabranch_model_store.serving_yaml import VersionPolicy
    from anabranch_runtime.store import Segment

__all__ = ["inspect"]

_SLOTS: Final = 4
"""Keys in a group of an index."""


def inspect(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|SEGMENT",
            help="Folder of a model or version, or a .seg file.",
            parser=local_place,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what lies in a model's folder, or in a segment, whose every byte is checked."""
    if place.is_file():
        _inspect_segment(place, as_json)
    else:
        _inspect_folder(place, as_json)


def _inspect_segment(path: Path, as_json: bool) -> None:
    from anabranch_runtime.store import Segment
    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError

    try:
        segment = Segment.open(path)
        segment.verify()
    except AnabranchError as error:
        fail(f"{path}: {error.message}")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    tables = [_segment_table(segment, number) for number in range(len(segment.tables))]
    if as_json:
        shown = {
            "format": segment.format,
            "version": segment.model_version,
            "tables": tables,
            "bytes": segment.bytes,
            "crc": "ok",
        }
        print_json(shown, compact=True)
        return
    print(f"segment of format {segment.format}, {segment.bytes} bytes, checksums ok")
    _print_table(tables)


def _segment_table(segment: "Segment", number: int) -> dict[str, Any]:
    table = segment.tables[number]
    is_dense = table.keys == "dense_id"
    return {
        "name": table.name,
        "rows": table.rows,
        "dim": table.dim,
        "dtype": table.row_type,
        "keys": table.keys,
        "load": 1.0 if is_dense else round(table.rows / (_SLOTS * table.groups), 4),
        "mean_probe": 1.0 if is_dense else round(segment.probes(number).mean, 4),
    }


def _inspect_folder(folder: Path, as_json: bool) -> None:
    from anabranch_model_store.inspection import inspect_model
    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError

    try:
        facts = inspect_model(folder)
    except AnabranchError as error:
        fail(error.message)
    shown = _model(facts)
    if as_json:
        print_json(shown, compact=True)
        return
    for version in shown["versions"]:
        print(f"{facts.name} version {version['version']}, {version['bytes']} bytes")
        if version["last_error"] is not None:
            print(f"  {version['last_error']}")
        _print_table(version["tables"])


def _model(facts: "ModelFacts") -> dict[str, Any]:
    deployment = facts.deployment
    return {
        "name": facts.name,
        "policy": _policy(deployment.versions),
        "labels": dict(deployment.labels),
        "versions": [
            {
                "version": one.version,
                "delta": 0,
                "step": one.step,
                "event_time": one.event_time,
                "published": one.published,
                "structure_hash": one.structure_hash,
                "bytes": one.bytes,
                "tables": [
                    {
                        "name": table.name,
                        "rows": table.rows,
                        "dim": table.dim,
                        "dtype": table.dtype,
                        "keys": table.keys,
                        "file": table.file,
                    }
                    for table in one.tables
                ],
                "last_error": one.error,
            }
            for one in facts.versions
        ],
    }


def _policy(versions: "VersionPolicy | Literal['all']") -> dict[str, object]:
    """Return which versions are served, as the admin port tells it."""
    if isinstance(versions, str):
        return {versions: True}
    if versions.specific is not None:
        return {"specific": list(versions.specific)}
    return {"latest": versions.latest}


def _print_table(rows: list[dict[str, Any]]) -> None:
    """Print a line for each table of a version or segment."""
    from rich.table import Table
    from rich.text import Text

    from anabranch_server.trimmed import trimmed_console

    if not rows:
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for head in rows[0]:
        is_number = isinstance(rows[0][head], int | float)
        shown.add_column(head.replace("_", " "), justify="right" if is_number else "left")
    for row in rows:
        shown.add_row(*(Text(str(value)) for value in row.values()))
    with trimmed_console(sys.stdout) as console:
        console.print(shown)
