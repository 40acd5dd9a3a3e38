"""The one place where a name from outside becomes a path: proven to stay inside its folder.

Manifests, model.yaml and ONNX files name other files. Whoever opens such a file asks
`resolve_inside` first and opens what it returns, which holds no symbolic link any more.
"""

import errno
import os
from pathlib import Path
from typing import Final

from anabranch_wire.errors import InvalidInput, NotFound, TooLarge, Unavailable
from anabranch_wire.names import check_relative_path

__all__ = ["read_inside", "resolve_file", "resolve_inside"]

_NO_PATH: Final = frozenset((errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL))
_SHOWN: Final = 120  # characters of a foreign path that a message repeats


def resolve_inside(folder: Path, relative: str) -> Path:
    """Return the real path of `relative` below `folder`.

    Symbolic links are followed, and allowed as long as what they lead to is inside `folder` (which
    may be reached by a link itself).

    Raises:
        InvalidInput: the text is no relative path, or a link leads out of the folder.
        NotFound: there is no such file or folder.
        Unavailable: it cannot be reached now.
    """
    check_relative_path(relative)
    try:
        root = folder.resolve(strict=True)
        found = root.joinpath(relative).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{relative}: no such file") from None
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a loop of symbolic links"
        is_lasting = not isinstance(error, OSError) or error.errno in _NO_PATH
        kind = InvalidInput if is_lasting else Unavailable
        raise kind(f"{relative[:_SHOWN]}: cannot be resolved: {reason}") from None
    if os.path.commonpath((root, found)) != str(root):
        raise InvalidInput(
            f"{relative}: a symbolic link leads out of the folder; copy the file into it"
        )
    return found


def resolve_file(folder: Path, relative: str) -> Path:
    """Return the real path of a regular file below `folder`.

    Raises:
        InvalidInput: as `resolve_inside`, or it is a folder, pipe, socket or device.
        NotFound: there is no such file.
    """
    found = resolve_inside(folder, relative)
    if not found.is_file():
        raise InvalidInput(f"{relative}: expected a regular file")
    return found


def read_inside(folder: Path, relative: str, max_bytes: int) -> bytes:
    """Return the bytes of a regular file below `folder`.

    Raises:
        InvalidInput: as `resolve_file`.
        NotFound: there is no such file.
        TooLarge: it has more than `max_bytes`.
        Unavailable: it cannot be read.
    """
    path = resolve_file(folder, relative)
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise Unavailable(f"{relative}: cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise TooLarge(f"{relative}: more than {max_bytes} bytes")
    return data
