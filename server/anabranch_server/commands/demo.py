"""`anabranch demo`: serve the example model that ships with the package, and rank with it."""

import signal
import sys
import time
from types import FrameType
from typing import Annotated, Final

import typer

__all__ = ["demo"]

_POLL_S: Final = 0.1


def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit after the ranking.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Serve until Ctrl-C.")] = False,
) -> None:
    """Rank 80 items for real users with the example model; on a terminal, keep serving it."""
    from importlib import resources

    from anabranch_server.commands.output import fail, say
    from anabranch_server.demo import DemoUrls, run_demo
    from anabranch_server.demo_requests import demo_data
    from anabranch_server.demo_server import demo_server

    if once and keep:
        fail("--once and --keep exclude each other", code=2)
    # SIGINT too: a shell starts what it puts in the background with SIGINT ignored.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)
    try:
        with (
            resources.as_file(demo_data() / "models") as repository,
            demo_server(repository) as server,
        ):
            at = server.ready
            urls = DemoUrls(
                http=f"http://{at.http}",
                grpc=f"grpc://{at.grpc}",
                metrics=f"http://{at.metrics}",
                admin=f"http://{at.admin}",
            )
            as_recorded = run_demo(urls, sys.stdout)
            sys.stdout.flush()
            if not as_recorded:
                fail("the scores are not those recorded at training")
            if server.taken:
                ports = ", ".join(map(str, server.taken))
                say(f"others have port {ports}: free ones were taken instead")
            if keep or (sys.stdout.isatty() and not once):
                say("serving until Ctrl-C")
                # Looks again and again: a signal just before a blocking wait would not end it.
                while server.process.poll() is None:
                    time.sleep(_POLL_S)
    except KeyboardInterrupt:
        pass


def _stop(signum: int, frame: FrameType | None) -> None:
    """End the demo as Ctrl-C does."""
    raise KeyboardInterrupt
