"""`anabranch score FILE --url URL`: send one recorded scoring request and print the answer."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["score"]


def score(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Open Inference Protocol request as JSON; - for standard input."
        ),
    ],
    url: Annotated[
        str, typer.Option(envvar="ANABRANCH_URL", help="The server's HTTP port.")
    ] = "http://127.0.0.1:8000",
    model: Annotated[
        str | None,
        typer.Option(help="Model to ask.", show_default="model_name in FILE, or the only model"),
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="Version or label.", show_default="the default one")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print on one line.")] = False,
) -> None:
    """Score the rows of a request file."""
    import json
    from urllib.parse import quote

    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.sent import chosen_model, print_answer, read_request

    request = read_request(file, "`inputs`")
    name, selector = chosen_model(request, url, model, version)
    place = f"/v2/models/{quote(name, safe='')}"
    if selector:
        place += f"/versions/{quote(selector, safe='')}"
    answer = call(url, f"{place}/infer", json.dumps(request).encode())
    print_answer(answer, compact=as_json)
