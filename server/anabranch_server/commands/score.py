"""`anabranch score FILE --url URL`: send one recorded request and print the answer."""

import json
import sys
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
    from urllib.parse import quote

    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.output import fail, print_json

    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        request = json.loads(text)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except ValueError as error:
        fail(f"{file}: not JSON: {error}")
    if not isinstance(request, dict):
        fail(f"{file}: expected an object with `inputs`")
    named = request.pop("model_name", None)
    selector = version or request.pop("model_version", None)
    name = model or (named if isinstance(named, str) else _only_model(url))
    place = f"/v2/models/{quote(name, safe='')}"
    if selector:
        place += f"/versions/{quote(str(selector), safe='')}"
    answer = call(url, f"{place}/infer", json.dumps(request).encode())
    if not answer.ok:
        fail(answer.error)
    print_json(answer.value, compact=as_json)


def _only_model(url: str) -> str:
    """Return the name of the server's model if it has exactly one."""
    from anabranch_server.commands.http_json import call
    from anabranch_server.commands.output import fail

    answer = call(url, "/v2/models")
    names = answer.value.get("models") if isinstance(answer.value, dict) else None
    if not answer.ok or not isinstance(names, list):
        fail(f"{url}: {answer.error}")
    if len(names) != 1:
        fail(f"name the model with --model; the server has {', '.join(names) or 'none'}", code=2)
    return str(names[0])
