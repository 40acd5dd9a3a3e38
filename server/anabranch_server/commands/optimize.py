"""`anabranch optimize MODEL.onnx -o DIR`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["optimize"]


def optimize(
    model_onnx: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="Exported model.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Version folder to write, as in models/ctr/1; must not exist, or be empty.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="model.yaml", help="What its inputs and outputs mean.", show_default="none"
        ),
    ] = None,
    min_table_bytes: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Leave smaller tables in the graph; 0 cuts all.",
            show_default="as in model.yaml, 65536",
        ),
    ] = None,
    keep_original: Annotated[
        bool,
        typer.Option("--keep-original", help="Put the original in too, for `anabranch verify`."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Cut the embedding lookups out of a model, ahead of time, and write a version to be served.

    The optimised model is compared with the original first; nothing is written where it answers
    differently. report.html in the folder shows what went where, and why.
    """
    import msgspec

    from anabranch_graph_opt.reporting.text import text_report
    from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
    from anabranch_runtime.backends.ort_runner import OrtModelRunner
    from anabranch_server.commands.output import fail, print_json, say
    from anabranch_wire.errors import AnabranchError

    request = OptimizeRequest(model_onnx, output, config, min_table_bytes, keep_original)
    try:
        report = optimize_folder(request, OrtModelRunner())
    except AnabranchError as error:
        fail(f"nothing was written: {error.message}")
    except OSError as error:
        fail(f"nothing was written: {error.filename or output}: {error.strerror}")
    if as_json:
        print_json(msgspec.to_builtins(report), compact=True)
    else:
        print(text_report(report), end="")
        say(f"written to {output}")
