"""The command line: `anabranch COMMAND`.

Results go to standard output, everything said to people to standard error. Exit codes: 0 done,
1 failed, 2 wrong usage or settings. Commands import what they need when they run, so that
`anabranch --help` is quick.
"""

import sys
from importlib.metadata import version
from typing import Annotated, Final

import typer

from anabranch_server.commands.actions import load, reload, rollback, unload, unpin
from anabranch_server.commands.demo import demo
from anabranch_server.commands.diff import diff
from anabranch_server.commands.doctor import doctor
from anabranch_server.commands.golden import golden
from anabranch_server.commands.inspect import inspect
from anabranch_server.commands.optimize import optimize
from anabranch_server.commands.publish import publish
from anabranch_server.commands.publish_delta import publish_delta
from anabranch_server.commands.rank import rank
from anabranch_server.commands.rows import rows
from anabranch_server.commands.score import score
from anabranch_server.commands.serve import serve
from anabranch_server.commands.status import status
from anabranch_server.commands.verify import verify
from anabranch_wire.errors import AnabranchError, InvalidInput

__all__ = ["app", "main"]

app = typer.Typer(
    name="anabranch",
    help="Online inference server for recommendation models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: Final = (
    serve, demo, rank, score, optimize, publish, publish_delta, verify, inspect, status, load,
    unload, reload, rollback, unpin, diff, doctor,
)  # fmt: skip

for command in _COMMANDS:
    app.command()(command)
app.command(context_settings={"ignore_unknown_options": True})(rows)  # keys may be negative
app.add_typer(golden)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"anabranch {version('anabranch')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Online inference server for recommendation models."""


def main() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="anabranch")
    except AnabranchError as error:
        print(f"anabranch: {error.message}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InvalidInput) else 1)
    except BrokenPipeError:
        # The reader of our output left; there is nobody to tell.
        sys.stderr.close()
        sys.exit(1)
