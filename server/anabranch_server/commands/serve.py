"""`anabranch serve DIR`: almost every flag is a setting of `anabranch_server.settings`."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from anabranch_server.processes.leaving import leave_on_signals

__all__ = ["NOT_SETTINGS", "serve"]

_DOORS: Final = "Where to listen"
_MODELS: Final = "What to serve"
_PROCESS: Final = "How to run"
_LOGS: Final = "Logs and settings"

NOT_SETTINGS: Final = frozenset({"repository", "config", "print_config"})
"""Parameters of the command that are no settings."""


def serve(
    context: typer.Context,
    repository: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR",
            help="Repository: DIR/<model>/<version>/model.onnx; a folder, or a URL as s3://....",
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Serve only these.", show_default="all", rich_help_panel=_MODELS
        ),
    ] = None,
    allow_empty: Annotated[
        bool | None,
        typer.Option("--allow-empty", help="Be ready without models.", rich_help_panel=_MODELS),
    ] = None,
    settle_s: Annotated[
        float | None,
        typer.Option(
            help="How long a version without manifest must be still.",
            show_default="5",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    poll_s: Annotated[
        float | None,
        typer.Option(
            help="Time between looks at the repository.", show_default="1", rich_help_panel=_MODELS
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Interface of HTTP, gRPC and metrics.",
            show_default="0.0.0.0",
            rich_help_panel=_DOORS,
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            help="HTTP; 0 takes a free port.", show_default="8000", rich_help_panel=_DOORS
        ),
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="gRPC.", show_default="8001", rich_help_panel=_DOORS)
    ] = None,
    grpc_engine: Annotated[
        str | None,
        typer.Option(
            metavar="grpcio|native",
            help="What answers gRPC.",
            show_default="grpcio",
            rich_help_panel=_DOORS,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Metrics and probes.", show_default="8002", rich_help_panel=_DOORS),
    ] = None,
    admin_host: Annotated[
        str | None,
        typer.Option(
            help="Interface of the admin ports.", show_default="127.0.0.1", rich_help_panel=_DOORS
        ),
    ] = None,
    admin_port: Annotated[
        int | None, typer.Option(help="Admin API.", show_default="8003", rich_help_panel=_DOORS)
    ] = None,
    admin_grpc_port: Annotated[
        int | None,
        typer.Option(
            help="Repository calls over gRPC.",
            show_default="8004",
            rich_help_panel=_DOORS,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes; 0 takes one per 8 cores.",
            show_default="0",
            rich_help_panel=_PROCESS,
        ),
    ] = None,
    drain_s: Annotated[
        float | None,
        typer.Option(
            help="Keep answering after SIGTERM while connections are open.",
            show_default="15",
            rich_help_panel=_PROCESS,
        ),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(help="Built and fetched files.", rich_help_panel=_PROCESS),
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Pins and labels.", rich_help_panel=_PROCESS)
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Ready file and sockets.", rich_help_panel=_PROCESS)
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(help="A second place for ready.json.", rich_help_panel=_PROCESS),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="json|text",
            help="Lines for machines or people.",
            show_default="json",
            rich_help_panel=_LOGS,
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="debug|info|warning|error",
            help="Least level that is written.",
            show_default="info",
            rich_help_panel=_LOGS,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="ANABRANCH_CONFIG", help="Settings file (YAML).", rich_help_panel=_LOGS
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print the settings and exit.", rich_help_panel=_LOGS),
    ] = False,
) -> None:
    """Serve the models of a repository until SIGTERM or Ctrl-C."""
    leave_on_signals()  # the server catches them once it runs; its modules take a second or more

    from anabranch_server.cores import usable_cores
    from anabranch_server.settings import read_settings, serve_config
    from anabranch_wire.errors import AnabranchError

    flags = {name: value for name, value in context.params.items() if name not in NOT_SETTINGS}
    try:
        read = read_settings(flags, os.environ, config)
        if print_config:
            print(read.to_yaml(), end="")
        if repository is None:
            if print_config:
                return
            raise typer.BadParameter("name the repository", param_hint="DIR")
        told = serve_config(read, repository, usable_cores())
    except AnabranchError as error:
        print(f"anabranch: {error.message}", file=sys.stderr)
        raise typer.Exit(2) from None
    if print_config:
        return

    from anabranch_runtime.ort_distributions import check_distributions
    from anabranch_server.launcher import run_launcher

    check_distributions()  # refused before a port is taken
    raise typer.Exit(run_launcher(told))
