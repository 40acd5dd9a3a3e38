"""`anabranch publish DIR/model MODEL.onnx`."""

import time
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["publish"]


def publish(
    model_dir: Annotated[Path, typer.Argument(metavar="DIR/MODEL", help="Folder of the model.")],
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Publish a version of a model into a repository, all of it or nothing."""
    from anabranch_publish import publish_version
    from anabranch_server.commands.output import fail, print_json

    if held := _models_in(model_dir):
        fail(
            f"{model_dir}: expected the folder of one model, but it holds models "
            f"({', '.join(held)}): name the model too, as in {model_dir / 'MODEL'}",
            code=2,
        )
    begun = time.monotonic()
    try:
        published = publish_version(
            model_dir,
            model_onnx,
            version=version,
            model_yaml=model_yaml,
            external_data=external_data or (),
            warmup=warmup or (),
        )
    except OSError as error:
        fail(f"{error.filename or model_dir}: {error.strerror}")
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


def _models_in(folder: Path) -> list[str]:
    """Names of what looks like models in a folder: folders that hold versions."""
    from anabranch_wire.names import is_version

    if not folder.is_dir():
        return []
    return sorted(
        inner.name
        for inner in folder.iterdir()
        if inner.is_dir()
        and not is_version(inner.name)
        and any(is_version(one.name) and one.is_dir() for one in inner.iterdir())
    )
