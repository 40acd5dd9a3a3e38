"""What lies in a repository: model folders with version folders, by name alone.

A scan opens no file. Anything that is neither model nor version is ignored, and said once; hidden
names (with a leading dot) are temporary or somebody else's, and not even said.
"""

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from anabranch_model_store.containment import resolve_inside
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable
from anabranch_wire.manifest import FILE_NAME
from anabranch_wire.names import ModelName, check_model_name, is_version

__all__ = [
    "Ignored",
    "ModelFolder",
    "RepositoryScan",
    "VersionFolder",
    "find_model",
    "report_ignored",
    "scan_repository",
    "visible_names",
]

_LOGGER: Final = logging.getLogger(__name__)
_EXPECTED_FILES: Final = frozenset(("serving.yaml", "model.yaml"))


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """A folder whose name is a version number.

    Attributes:
        number: the version.
        path: real path, below the repository.
        published: whether a manifest says that it is complete.
    """

    number: int
    path: Path
    published: bool


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder whose name is a model's.

    Attributes:
        name: the model.
        path: real path, below the repository.
        versions: by number, ascending; may be empty.
    """

    name: ModelName
    path: Path
    versions: Mapping[int, VersionFolder]


@dataclass(frozen=True, slots=True, order=True)
class Ignored:
    """Something that is no part of the repository.

    Attributes:
        place: where it lies, relative to the repository.
        reason: why it does not count, and what was expected.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoryScan:
    """What one look at a repository found.

    Attributes:
        models: by name, in the order of names.
        ignored: everything else.
    """

    models: Mapping[ModelName, ModelFolder]
    ignored: frozenset[Ignored]


def scan_repository(root: Path, only: Collection[str] | None = None) -> RepositoryScan:
    """Look at `root` without opening a file.

    Folders that come or go meanwhile are seen or not.

    Args:
        root: the repository.
        only: names of the models to look at; None is all. Others are not even mentioned.

    Raises:
        NotFound: `root` is no folder.
        Unavailable: `root` cannot be read.
    """
    models: dict[ModelName, ModelFolder] = {}
    ignored: set[Ignored] = set()
    for name in visible_names(root):
        if only is not None and name not in only:
            continue
        try:
            folder = find_model(root, name, ignored)
        except Unavailable as error:
            ignored.add(Ignored(name, error.message))
            continue
        if folder is not None:
            models[folder.name] = folder
    return RepositoryScan(MappingProxyType(models), frozenset(ignored))


def visible_names(root: Path) -> list[str]:
    """Return the names in a repository that may be models, in order.

    Raises:
        NotFound: `root` is no folder.
        Unavailable: `root` cannot be read.
    """
    if not root.is_dir():
        raise NotFound("the repository is no folder")
    try:
        return _visible(root)
    except OSError as error:
        raise Unavailable(f"the repository cannot be read: {error.strerror}") from None


def find_model(root: Path, name: str, ignored: set[Ignored]) -> ModelFolder | None:
    """Return the model that lies under `name`; None where there is none.

    Args:
        root: the repository.
        name: of a folder or file in it.
        ignored: gets what is neither model nor version.

    Raises:
        Unavailable: something lies there that cannot be read now.
    """
    try:
        folder = resolve_inside(root, name)
        if folder.is_dir():
            model = check_model_name(name)
            return ModelFolder(model, folder, _versions(root, model, folder, ignored))
        ignored.add(Ignored(name, "a file; expected folders named like models"))
    except NotFound:
        pass  # gone since it was listed, or a link to nothing
    except InvalidInput as error:
        ignored.add(Ignored(name, error.message))
    except OSError as error:
        raise Unavailable(f"cannot be read: {error.strerror}") from None
    return None


def report_ignored(found: frozenset[Ignored], known: frozenset[Ignored]) -> None:
    """Log one line for each of `found` that is not among `known`, the ones of the scan before."""
    for ignored in sorted(found - known):
        _LOGGER.warning(
            "ignored %r: %s", ignored.place, ignored.reason, extra={"event": "repository_ignored"}
        )


def _versions(
    root: Path, model: ModelName, folder: Path, ignored: set[Ignored]
) -> Mapping[int, VersionFolder]:
    found: dict[int, VersionFolder] = {}
    for name in _visible(folder):
        place = f"{model}/{name}"
        try:
            path = resolve_inside(root, place)
        except NotFound:
            continue
        except InvalidInput as error:
            ignored.add(Ignored(place, error.message))
            continue
        if is_version(name) and path.is_dir():
            published = os.path.isfile(path / FILE_NAME)  # not, where that cannot be seen
            found[int(name)] = VersionFolder(int(name), path, published)
        elif name not in _EXPECTED_FILES:
            ignored.add(Ignored(place, _no_version(path)))
    return MappingProxyType(dict(sorted(found.items())))


def _visible(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def _no_version(path: Path) -> str:
    if not path.is_dir():
        return "a file; files of a model lie in version folders such as 1/"
    return "no version; those have 1 to 18 digits without a leading 0"
