"""What `anabranch rank` and `anabranch score` share: a request from a file, sent to a model."""

import json
import sys
from pathlib import Path

from anabranch_server.commands.http_json import Answer, call
from anabranch_server.commands.output import fail, print_json

__all__ = ["chosen_model", "print_answer", "read_request"]


def read_request(file: Path, holds: str) -> dict[str, object]:
    """Return the object in a file, or on standard input where the file is `-`; or leave with 1.

    Args:
        file: JSON.
        holds: what it should have, for whoever sent something else.
    """
    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        request = json.loads(text)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except (ValueError, RecursionError) as error:
        fail(f"{file}: not JSON: {error}")
    if not isinstance(request, dict):
        fail(f"{file}: expected an object with {holds}")
    return request


def chosen_model(
    request: dict[str, object], url: str, model: str | None, version: str | None
) -> tuple[str, str]:
    """Return the model to ask and its version or label, empty for the default one.

    Fields `model_name` and `model_version` are taken out of the request.

    Args:
        request: as it was read.
        url: of the server, which is asked where nothing names a model; one alone is meant.
        model: named by an option, which counts before the request.
        version: likewise.
    """
    named = request.pop("model_name", None)
    selector = request.pop("model_version", None)
    name = model or (named if isinstance(named, str) else None)
    return name or _only_model(url), str(version or selector or "")


def print_answer(answer: Answer, *, compact: bool) -> None:
    """Print what a server answered, or say why it did not and leave with 1."""
    if not answer.ok:
        fail(answer.error)
    print_json(answer.value, compact=compact)


def _only_model(url: str) -> str:
    answer = call(url, "/v2/models")
    names = answer.value.get("models") if isinstance(answer.value, dict) else None
    if not answer.ok or not isinstance(names, list):
        fail(f"{url}: {answer.error}")
    if len(names) != 1:
        shown = ", ".join(map(str, names)) or "none"
        fail(f"name the model with --model; the server has {shown}", code=2)
    return str(names[0])
