"""`anabranch rank FILE --url URL`: send one recorded ranking request and print the answer."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["rank"]


def rank(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Ranking request as JSON, with `user` and `candidates`; - for standard input.",
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
    top_k: Annotated[
        int | None,
        typer.Option(min=0, help="How many are wanted; 0 is all.", show_default="top_k in FILE"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say where the numbers come from.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print on one line.")] = False,
) -> None:
    """Order the candidates of a request file."""
    import json
    from urllib.parse import quote

    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.sent import chosen_model, print_answer, read_request

    request = read_request(file, "`user` and `candidates`")
    name, selector = chosen_model(request, url, model, version)
    if top_k is not None:
        request["top_k"] = top_k
    if explain:
        request["explain"] = True
    place = f"/v1/models/{quote(name, safe='')}"
    if selector:
        kind = "versions" if selector.isdecimal() else "labels"
        place += f"/{kind}/{quote(selector, safe='')}"
    answer = call(url, f"{place}:rank", json.dumps(request).encode())
    print_answer(answer, compact=as_json)
