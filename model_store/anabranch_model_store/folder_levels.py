"""Which level of a repository a folder looks like, so that a path one level off is told as such.

Only names are looked at; no file is opened.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch_wire.errors import InvalidInput
from anabranch_wire.manifest import FILE_NAME
from anabranch_wire.names import is_version

__all__ = ["check_model_level", "check_repository_level"]

_SIGNS: Final = ("model.onnx", FILE_NAME)
"""Files of a version."""
_SHOWN: Final = 5


def check_repository_level(folder: Path) -> None:
    """Check that a folder may be a repository.

    Raises:
        InvalidInput: it looks like one model, or one version, of a repository, or like the folder
            that holds one; says which folder is the repository then.
        OSError: it cannot be read.
    """
    if _is_version(folder):
        above = folder.absolute().parent.parent
        raise InvalidInput(
            f"{folder} looks like a version of a model: the repository is {above}, two levels up"
        )
    versions = _names(folder, _is_numbered_version)
    if versions and not _models(folder):
        raise InvalidInput(
            f"{folder} looks like the folder of one model with versions {_listed(versions)}: "
            f"the repository is {folder.absolute().parent}, one level up"
        )
    if not _models(folder) and (inner := _names(folder, _is_repository)):
        raise InvalidInput(
            f"{folder} holds no model, but looks like a folder with repositories in it: "
            f"name one of them ({_listed([str(folder / name) for name in inner])})"
        )


def check_model_level(folder: Path) -> None:
    """Check that a folder, which need not be there yet, may be that of one model.

    Raises:
        InvalidInput: it looks like a repository, or like a version of a model.
        OSError: it cannot be read.
    """
    if not folder.is_dir():
        return
    if _is_version(folder):
        raise InvalidInput(
            f"{folder} looks like a version of a model: name the model's folder, "
            f"{folder.absolute().parent}"
        )
    if models := _models(folder):
        raise InvalidInput(
            f"{folder}: expected the folder of one model, but it holds models "
            f"({_listed(models)}): name the model too, as in {folder / 'MODEL'}"
        )


def _models(folder: Path) -> list[str]:
    """Folders that hold folders named like versions, and are not named like versions."""
    return _names(folder, lambda inner: not is_version(inner.name) and _holds_versions(inner))


def _is_repository(folder: Path) -> bool:
    """Whether a folder, other than a hidden one, holds a model with a version."""
    return not folder.name.startswith(".") and any(
        _names(folder / model, _is_numbered_version) for model in _models(folder)
    )


def _holds_versions(folder: Path) -> bool:
    return any(is_version(inner.name) and inner.is_dir() for inner in folder.iterdir())


def _is_numbered_version(folder: Path) -> bool:
    return is_version(folder.name) and _is_version(folder)


def _is_version(folder: Path) -> bool:
    return any((folder / sign).is_file() for sign in _SIGNS)


def _names(folder: Path, fits: Callable[[Path], bool]) -> list[str]:
    """Names, in order, of the folders in `folder` that fit; those that cannot be read do not."""
    found: list[str] = []
    for inner in folder.iterdir():
        with suppress(PermissionError):
            if inner.is_dir() and fits(inner):
                found.append(inner.name)
    return sorted(found)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
