"""The server's own folders: where they are by default, and that nobody else can touch them."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch_wire.errors import PermissionDenied, Unavailable

__all__ = [
    "default_cache_dir",
    "default_run_dir",
    "default_state_dir",
    "own_folder",
    "run_dir_at",
    "state_dir_for",
]

_HTTP_PORT: Final = "{http_port}"
_REPOSITORY: Final = "{repository}"
_DIGITS: Final = 12
_NAME_LENGTH: Final = 60
_PRIVATE: Final = 0o700
_WRITABLE_BY_OTHERS: Final = 0o022


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """Return where downloads and built files go: the XDG cache home, else a private /tmp folder."""
    return _xdg(environ, "XDG_CACHE_HOME", ".cache") or _private_tmp() / "cache"


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """Return where pins and labels go: a template, so that repositories keep apart.

    It lies in the XDG state home, else in a private /tmp folder.
    """
    base = _xdg(environ, "XDG_STATE_HOME", ".local/state") or _private_tmp() / "state"
    return base / _REPOSITORY


def default_run_dir(environ: Mapping[str, str]) -> Path:
    """Return where sockets and the ready file go: a template, so that servers keep apart."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    base = Path(runtime) / "anabranch" if Path(runtime).is_absolute() else _private_tmp() / "run"
    return base / _HTTP_PORT


def run_dir_at(template: Path, http_port: int) -> Path:
    """Return a run folder with `{http_port}` filled in."""
    return Path(str(template).replace(_HTTP_PORT, str(http_port)))


def state_dir_for(template: Path, repository: Path) -> Path:
    """Return a state folder with `{repository}` filled in: its name, and a digest of its path.

    Args:
        template: as set.
        repository: as it was named, absolute: a link that leads elsewhere stays the same one.
    """
    named = os.path.normpath(repository)
    digest = hashlib.sha256(os.fsencode(named)).hexdigest()[:_DIGITS]
    name = Path(named).name[:_NAME_LENGTH]
    return Path(str(template).replace(_REPOSITORY, f"{name}-{digest}"))


def own_folder(path: Path) -> Path:
    """Create `path` where it is missing, with mode 0700, and return it.

    An empty folder is made private too. One that holds something stays as it is, since it may be
    more than ours, such as a system's folder that was named by mistake.

    Raises:
        PermissionDenied: it belongs to another user, is a link, cannot be made private, or holds
            something and others may write into it.
        Unavailable: it cannot be created.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (path, *_above_in_tmp(path)):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionDenied(f"{folder}: expected a folder of the server's own user")
        _make_private(path)
    except PermissionError as error:
        raise PermissionDenied(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from None
    return path


def _make_private(path: Path) -> None:
    """Keep others out of an empty folder; refuse one that is in use and open to their writing."""
    mode = stat.S_IMODE(path.lstat().st_mode)
    if mode == _PRIVATE:
        return
    with os.scandir(path) as entries:
        is_empty = next(entries, None) is None
    if is_empty:
        path.chmod(_PRIVATE)
    elif mode & _WRITABLE_BY_OTHERS:
        raise PermissionDenied(
            f"{path}: others may write into this folder, which holds something already "
            f"(mode {mode:04o}): name another one or, if it is the server's alone, make it 0700"
        )


def _xdg(environ: Mapping[str, str], variable: str, below_home: str) -> Path | None:
    """The XDG folder of anabranch, or None where there is no home to put it into."""
    base = environ.get(variable, "")
    if Path(base).is_absolute():
        return Path(base) / "anabranch"
    home = environ.get("HOME", "")
    if Path(home).is_absolute() and os.access(home, os.W_OK):
        return Path(home) / below_home / "anabranch"
    return None


def _above_in_tmp(path: Path) -> list[Path]:
    """The folders between `path` and a /tmp where anybody might have made them first."""
    tmp = Path(tempfile.gettempdir())
    return [above for above in path.parents if above.is_relative_to(tmp) and above != tmp]


def _private_tmp() -> Path:
    return Path(tempfile.gettempdir()) / f"anabranch-{os.geteuid()}"
