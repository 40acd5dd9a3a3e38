"""Telling a full disk from other troubles."""

import errno
from typing import Final

__all__ = ["is_disk_full"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether it is for want of room, also where that was said in other words since."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False
