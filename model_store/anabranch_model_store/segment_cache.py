"""Segments in the cache folder: made once for the same tables, found again, cleared by size."""

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch_model_store.cache_entries import sync
from anabranch_model_store.file_cache import FileCache
from anabranch_runtime.store import Segment

__all__ = ["SegmentCache", "link_or_copy"]

_SUFFIX: Final = ".seg"


class SegmentCache(FileCache):
    """The folder of segments; see `FileCache`.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what `prune` keeps at most, beside what is in use.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        super().__init__(folder, limit_bytes, _SUFFIX, _verify)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a finished file another name, in a way that survives what becomes of the first one.

    It is linked where both lie on one file system, and copied where not.

    Raises:
        OSError: `target` is taken, or cannot be written.
    """
    try:
        os.link(source, target)
    except OSError:  # another file system, or none with links
        temporary = target.with_name(f".{secrets.token_hex(8)}.{target.name}")
        try:
            shutil.copyfile(source, temporary)
            sync(temporary)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
    sync(target.parent)


def _verify(place: Path, on_bytes: Callable[[int], None]) -> None:
    segment = Segment.open(place)
    segment.verify(on_bytes)
    on_bytes(segment.bytes)  # checksums of the checksums are not counted
