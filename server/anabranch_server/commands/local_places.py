"""Folders and files of this machine, as arguments of commands that take no URLs of elsewhere."""

from pathlib import Path

import typer

from anabranch_wire.places import local_path

__all__ = ["local_place"]


def local_place(text: str) -> Path:
    """Return the place that an argument names.

    Raises:
        BadParameter: it is a URL that leads elsewhere.
    """
    place = local_path(text)
    if place is None:
        raise typer.BadParameter(f"{text}: expected a folder or file of this machine, not a URL")
    return place
