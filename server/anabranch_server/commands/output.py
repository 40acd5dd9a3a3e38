"""How commands talk: results to standard output, everything else to standard error."""

import json
import sys
from typing import NoReturn

import typer

__all__ = ["fail", "print_json", "say"]


def say(text: str) -> None:
    """Tell people something that is no result."""
    print(f"anabranch: {text}", file=sys.stderr)


def fail(text: str, code: int = 1) -> NoReturn:
    """Say why nothing came of it, and leave.

    Args:
        text: the reason and, where there is one, the remedy.
        code: exit code; 1 = it failed, 2 = wrong usage.
    """
    say(text)
    raise typer.Exit(code)


def print_json(value: object, *, compact: bool) -> None:
    """Print a result: on one line for machines, indented for people."""
    print(
        json.dumps(value, indent=None if compact else 2, separators=(",", ":") if compact else None)
    )
