"""When a version folder without a manifest is complete: nothing in it has changed for a while.

People copy files in by hand, and nothing says when they are done. Everything here is a function of
what was seen and of times given as parameters; whoever polls keeps the last `Stillness`.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch_model_store.containment import resolve_inside
from anabranch_wire.errors import InvalidInput, TooLarge, Unavailable

__all__ = ["FileStat", "FolderListing", "Stillness", "is_settled", "list_files", "observe"]

_MAX_FILES: Final = 100_000
_DELTAS: Final = "deltas"


@dataclass(frozen=True, slots=True, order=True)
class FileStat:
    """One file as it was seen.

    Attributes:
        path: relative to the version folder, `/` between parts.
        bytes: size.
        modified_ns: time of its last change, nanoseconds since 1970.
    """

    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The files of a version folder.

    Attributes:
        files: in the order of paths, without `deltas/` (those come later and publish themselves).
        modified_ns: the newest change of any file or folder.
        folders: relative paths of the folders in it, in their order.
    """

    files: tuple[FileStat, ...]
    modified_ns: int
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stillness:
    """How long a folder has not changed, as far as is known.

    Attributes:
        listing: what was seen last.
        since_s: seconds on the monotonic clock since when nothing else was seen.
    """

    listing: FolderListing
    since_s: float


def list_files(folder: Path) -> FolderListing:
    """Return every file of a version folder, links followed.

    Raises:
        InvalidInput: a link leads out of the folder, or something is neither file nor folder.
        TooLarge: more than 100,000 files.
        Unavailable: the folder is gone or cannot be read.
    """
    walk = _Walk(folder)
    try:
        walk.enter("", (folder.resolve(strict=True),))
    except FileNotFoundError:
        raise Unavailable("the version folder is gone, or changes while it is read") from None
    except OSError as error:
        raise Unavailable(f"the version folder cannot be read: {error.strerror}") from None
    return FolderListing(tuple(sorted(walk.files)), walk.modified_ns, tuple(sorted(walk.folders)))


def observe(
    listing: FolderListing,
    previous: Stillness | None,
    *,
    now_s: float,
    wall_s: float,
    at_start: bool = False,
) -> Stillness:
    """Return what is known of the folder's stillness after one more look at it.

    Args:
        listing: what was seen now.
        previous: result of the look before; None for the first.
        now_s: monotonic clock, seconds.
        wall_s: seconds since 1970, the clock of modification times.
        at_start: whether the server starts: only then do modification times count, so that a
            restart does not wait for what has long been there.
    """
    if previous is not None and _is_same(previous.listing, listing):
        return previous
    if previous is None and at_start:
        age_s = max(0.0, wall_s - listing.modified_ns / 1e9)
        return Stillness(listing, now_s - age_s)
    return Stillness(listing, now_s)


def is_settled(stillness: Stillness, *, now_s: float, settle_s: float) -> bool:
    """Whether the folder has been still for `settle_s` seconds at monotonic time `now_s`."""
    return now_s - stillness.since_s >= settle_s


def _is_same(one: FolderListing, other: FolderListing) -> bool:
    """Whether nothing has changed; that a folder's time has, as with the first delta, says less."""
    return one.files == other.files and one.folders == other.folders


class _Walk:
    """Collects the files below one folder; owned by one call of `list_files`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: list[FileStat] = []
        self.folders: list[str] = []
        self.modified_ns = 0

    def enter(self, relative: str, above: tuple[Path, ...]) -> None:
        """Collect what is below `relative`; `above` are the real folders on the way, for loops."""
        self.modified_ns = max(self.modified_ns, above[-1].stat().st_mtime_ns)
        for name in os.listdir(above[-1]):
            path = f"{relative}{name}"
            if path == _DELTAS:
                continue
            real = resolve_inside(self._folder, path)
            if real.is_dir():
                if real in above:
                    raise InvalidInput(f"{path}: a link to a folder it lies in")
                self.folders.append(path)
                self.enter(f"{path}/", (*above, real))
                continue
            if len(self.files) >= _MAX_FILES:
                raise TooLarge(f"the version folder has more than {_MAX_FILES} files")
            status = real.stat()
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInput(f"{path}: neither a file nor a folder")
            self.files.append(FileStat(path, status.st_size, status.st_mtime_ns))
            self.modified_ns = max(self.modified_ns, status.st_mtime_ns)
