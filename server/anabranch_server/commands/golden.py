"""`anabranch golden make` and `anabranch golden check`: golden requests of a version folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch_model_store.golden import GoldenReport

__all__ = ["golden"]

golden = typer.Typer(
    name="golden",
    help="Record and check golden requests: proof that serving equals training.",
    no_args_is_help=True,
)


@golden.command()
def make(
    function: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="Trainer's function that yields requests."),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a version that is not published yet.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove golden requests that are there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Record golden requests: call the trainer's own function, and write what it yields.

    MODULE is found as `python -m` finds it, from the current folder on. FUNCTION takes nothing and
    yields mappings with `request`, `keys`, `scores` and, if need be, `max_abs_diff`.
    """
    from anabranch_model_store.golden.recording import record_golden
    from anabranch_server.commands.output import fail, print_json
    from anabranch_wire.errors import AnabranchError

    requests = _called(function)
    try:
        written = record_golden(_guarded(requests, function), folder, replace=replace)
    except AnabranchError as error:
        fail(error.message)
    except OSError as error:
        fail(f"{error.filename or folder}: {error.strerror}")
    if as_json:
        print_json({"files": list(written)}, compact=True)
    else:
        what = "1 golden request" if len(written) == 1 else f"{len(written)} golden requests"
        print(f"{folder}: {what}, {' to '.join(dict.fromkeys((written[0], written[-1])))}")


@golden.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a version.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the golden requests of a version, and name the first key or score that differs.

    The version is prepared as a server does it, with the same decoding, hashes, lookups and graph.
    """
    from anabranch_model_store.golden.folders import check_golden
    from anabranch_runtime.backends.ort_runner import OrtModelRunner
    from anabranch_server.commands.output import print_json, say
    from anabranch_wire.errors import AnabranchError

    report, text = None, ""
    try:
        report = check_golden(folder, OrtModelRunner())
    except AnabranchError as error:
        text = error.message
    except OSError as error:
        text = f"{error.filename or folder}: {error.strerror or error}"
    if report is not None and report.difference is not None:
        text = report.difference.text
    if as_json:
        print_json(_document(report, text), compact=True)
    elif text:
        say(text)
    elif report is not None:
        print(_summary(folder, report))
    if text:
        raise typer.Exit(1)


def _called(function: str) -> "Iterable[object]":
    """Import a module and call its function."""
    import importlib
    import sys

    from anabranch_server.commands.output import fail

    module_name, _, name = function.partition(":")
    if not module_name or not name:
        fail(f"{function!r}: expected MODULE:FUNCTION", code=2)
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        fail(f"no module {module_name!r} in the current folder or among those installed", code=2)
    found = getattr(module, name, None)
    if not callable(found):
        fail(f"module {module_name!r} has no function {name!r}", code=2)
    requests = found()
    if not hasattr(requests, "__iter__"):
        fail(f"{function} returned {type(requests).__name__}; expected requests to go through")
    return requests  # type: ignore[no-any-return]  # whatever it yields is looked at


def _guarded(requests: "Iterable[object]", function: str) -> "Iterable[object]":
    """Yield what a function yields; where it fails, say so beside its own traceback."""
    from anabranch_server.commands.output import say

    try:
        yield from requests
    except Exception:  # the trainer's code: its traceback is what helps
        say(f"{function} failed; nothing was written")
        raise


def _document(report: "GoldenReport | None", text: str) -> dict[str, object]:
    from dataclasses import asdict

    found: dict[str, object] = {"ok": not text}
    if report is not None:
        found |= {
            "files": list(report.files),
            "keys": report.keys,
            "scores": report.scores,
            "max_abs_diff": report.max_abs_diff,
            "unproven": list(report.unproven),
            "difference": None if report.difference is None else asdict(report.difference),
        }
    return {**found, "error": text or None}


def _summary(folder: Path, report: "GoldenReport") -> str:
    text = (
        f"{folder}: {len(report.files)} golden requests give the same: {report.keys} rows of keys, "
        f"{report.scores} scores, off by at most {report.max_abs_diff:.3g}"
    )
    if report.unproven:
        text += f"; no keys of {', '.join(report.unproven)}"
    return text
