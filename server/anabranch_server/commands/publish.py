"""`anabranch publish DIR/model|URL MODEL.onnx`."""

import time
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["publish"]


def publish(
    model: Annotated[
        str, typer.Argument(metavar="DIR/MODEL|URL", help="Folder of the model, or its URL.")
    ],
    model_onnx: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Exported model.")],
    version: Annotated[
        int | None,
        typer.Option(min=1, help="Version number.", show_default="the next one"),
    ] = None,
    model_yaml: Annotated[
        Path | None, typer.Option(help="What its inputs and outputs mean.", show_default="none")
    ] = None,
    external_data: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="File that the ONNX file refers to; may be repeated."),
    ] = None,
    warmup: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Sample inputs (.npz, .json); may be repeated."),
    ] = None,
    golden: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Golden requests (.json); may be repeated."),
    ] = None,
    items: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Item tables (.parquet); may be repeated."),
    ] = None,
    vocabulary: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Vocabularies of features (.txt), put in vocab/; may be repeated."
        ),
    ] = None,
    table: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Rows of the table NAME, as NAME.safetensors; may be repeated.",
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option(min=0, help="Training step of the model.", show_default="none")
    ] = None,
    event_time: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Time of the newest event in it, in seconds since 1970.",
            show_default="none",
        ),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Admin port that is told of it; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish a version of a model into a repository, all of it or nothing.

    What lies in its files is checked first: that the graph can be read, and that model.yaml, the
    sample inputs and the item tables fit it.
    """
    from anabranch_model_store.folder_levels import check_model_level
    from anabranch_model_store.version_contents import check_unpublished
    from anabranch_publish import Publisher
    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError
    from anabranch_wire.places import local_path

    begun = time.monotonic()
    tables = {file.stem: file for file in table or ()}
    if len(tables) != len(table or ()):
        fail("--table: two files have the same name; the name is that of the table", code=2)
    model_dir = local_path(model)
    try:
        if model_dir is not None:
            check_model_level(model_dir)
    except AnabranchError as error:
        fail(error.message, code=2)
    except OSError as error:
        fail(f"{error.filename or model}: {error.strerror}")
    try:
        with Publisher(model, notify=notify or ()) as publisher:
            published = publisher.publish_version(
                model_onnx,
                version=version,
                model_yaml=model_yaml,
                external_data=external_data or (),
                tables=tables,
                warmup=warmup or (),
                golden=golden or (),
                items=items or (),
                vocabularies=vocabulary or (),
                step=step,
                event_time=event_time,
                check=lambda folder: check_unpublished(
                    folder, folder.parent if model_dir is None else model_dir.absolute()
                ),
            )
    except AnabranchError as error:
        fail(f"nothing was published: {error.message}")
    except OSError as error:
        fail(f"nothing was published: {error.filename or model}: {error.strerror or error}")
    result = {
        "version": published.version,
        "sequence": 0,
        "bytes": published.bytes,
        "seconds": round(time.monotonic() - begun, 3),
    }
    if as_json:
        print_json(result, compact=True)
    else:
        print(
            f"published {published.model} version {published.version} "
            f"at {published.path} ({published.bytes} bytes)"
        )
