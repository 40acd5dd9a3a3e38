"""Tables for people, without the blanks that fill their cells to the end of each line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from rich.console import Console

__all__ = ["trimmed_console"]

_PLAIN_WIDTH: Final = 100


@contextmanager
def trimmed_console(out: TextIO) -> Iterator[Console]:
    """Give a console for the length of a block, and print what it was given at its end.

    Args:
        out: where to; with colours and as wide as it is if it is a terminal, else plain.
    """
    console = Console(file=out, highlight=False, width=None if out.isatty() else _PLAIN_WIDTH)
    with console.capture() as shown:
        yield console
    for line in shown.get().splitlines():
        print(line.rstrip(), file=out)
