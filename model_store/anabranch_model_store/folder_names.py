"""Which version of which model a folder is, by its place."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import check_model_name, is_version

__all__ = ["FolderName", "folder_name"]


@dataclass(frozen=True, slots=True)
class FolderName:
    """A version of a model.

    Attributes:
        model: name of the model.
        version: number of it.
        is_placed: whether the folder lies where a repository has it, as `MODEL/NUMBER`.
    """

    model: str
    version: int
    is_placed: bool


def folder_name(folder: Path, fallback: str) -> FolderName:
    """Return what a folder is: `MODEL/NUMBER` by its place, else version 1 of a model of its name.

    Args:
        folder: the version folder.
        fallback: name of the model where the folder's is none.
    """
    place = folder.absolute()
    names, number = [place.name, fallback], 1
    if is_version(place.name):
        number = int(place.name)
        with suppress(InvalidInput):
            return FolderName(check_model_name(place.parent.name), number, is_placed=True)
        names = [fallback]
    for name in names:
        with suppress(InvalidInput):
            return FolderName(check_model_name(name), number, is_placed=False)
    return FolderName("model", number, is_placed=False)
