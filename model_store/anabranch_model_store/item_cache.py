"""Item tables in the cache folder: made once for the same file and features, found again."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch_model_store.file_cache import FileCache
from anabranch_runtime.ranking.item_table import ItemTable

__all__ = ["ItemCache"]

_SUFFIX: Final = ".items"


class ItemCache(FileCache):
    """The folder of item tables; see `FileCache`.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what `prune` keeps at most, beside what is in use.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        super().__init__(folder, limit_bytes, _SUFFIX, _verify)


def _verify(place: Path, on_bytes: Callable[[int], None]) -> None:
    ItemTable(place).verify(on_bytes)
