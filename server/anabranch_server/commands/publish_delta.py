"""`anabranch publish-delta DIR/model --version N`."""

import time
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["publish_delta"]


def publish_delta(
    model: Annotated[
        str, typer.Argument(metavar="DIR/MODEL|URL", help="Folder of the model, or its URL.")
    ],
    version: Annotated[int, typer.Option(min=1, help="Version that it changes.")],
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Rows: keys, values and deleted in .safetensors or .npz; may be repeated.",
        ),
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE", help="Keys without a row from now on (.npy); may be repeated."
        ),
    ] = None,
    dense: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Weights by name, .safetensors or .npz; may be repeated."
        ),
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="These are all dense weights of the model.")
    ] = False,
    items: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Item table (.parquet); may be repeated."),
    ] = None,
    golden: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Golden requests (.json); may be repeated."),
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Training step.", show_default="none")
    ] = None,
    event_time: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Time of the newest event in it, in seconds since 1970.",
            show_default="none",
        ),
    ] = None,
    replaces_from: Annotated[
        int | None,
        typer.Option(
            min=1, help="It holds all of the deltas from that one on.", show_default="only itself"
        ),
    ] = None,
    attempt: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="16 hexadecimal digits: a delta of that attempt is published once.",
            show_default="new ones",
        ),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", help="Merge the deltas from --replaces-from (1) on into a new one."
        ),
    ] = False,
    notify: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Admin port that is told of it; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish changed rows and weights of a version, all of them or nothing."""
    from anabranch_publish import Publisher
    from anabranch_server.commands.delta_files import fill, named
    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError, InvalidInput

    begun = time.monotonic()
    told = (table, delete, dense, items, golden, step, event_time)
    is_told = any(one not in (None, []) for one in told)
    if compact and (complete or attempt is not None or is_told):
        fail("--compact merges what is published: it takes no contents of its own", code=2)
    if not compact and not is_told:
        fail(
            "nothing to publish: say what has changed by --table, --delete, --dense or --items, "
            "or how far training was by --step or --event-time",
            code=2,
        )
    try:
        with Publisher(model, version, notify=notify or ()) as publisher:
            if compact:
                publisher.compact(replaces_from=replaces_from or 1)
                document = publisher.newest()
            else:
                draft = publisher.delta(
                    step=step,
                    event_time=event_time,
                    golden=golden or (),
                    item_tables=named(items or (), "--items"),
                    replaces_from=replaces_from,
                    attempt=attempt,
                )
                tables = named(table or (), "--table")
                deletes = named(delete or (), "--delete")
                fill(draft, tables, deletes, dense or (), complete=complete)
                draft.publish()
                document = draft.published
    except InvalidInput as error:
        fail(f"nothing was published: {error.message}", code=2)
    except AnabranchError as error:
        fail(f"nothing was published: {error.message}")
    except OSError as error:
        fail(f"nothing was published: {error.filename or model}: {error.strerror or error}")
    assert document is not None
    result = {
        "version": version,
        "sequence": document.sequence,
        "bytes": sum(file.bytes for file in document.files),
        "seconds": round(time.monotonic() - begun, 3),
    }
    if as_json:
        print_json(result, compact=True)
    else:
        print(
            f"published delta {result['sequence']} of {document.model} version {version} "
            f"({result['bytes']} bytes)"
        )
