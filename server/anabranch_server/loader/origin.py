"""Where the loader has the files of versions and deltas from."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

from anabranch_model_store.deltas.origins import LocalOrigin, Origin
from anabranch_server.config import RepositoryConfig

__all__ = ["open_origin"]

_FOLDER: Final = "fetched"


def open_origin(
    repository: RepositoryConfig,
    cache: Path,
    in_use: Collection[str],
    since: float | None = None,
) -> Origin:
    """Return what brings files onto this machine, and keep what it brought before small.

    Args:
        repository: where they come from.
        cache: the server's cache folder.
        in_use: files that processes may still be told of.
        since: what was fetched or used at that time or later stays, seconds since 1970.
    """
    if repository.url is None:
        return LocalOrigin()
    # Those who serve a folder need none of it.
    from anabranch_model_store.sources.downloads import Downloads
    from anabranch_model_store.sources.fetched import Fetched
    from anabranch_model_store.sources.remote_folders import RemoteFolder
    from anabranch_model_store.sources.remote_origin import RemoteOrigin

    downloads = Downloads(RemoteFolder(repository.url, repository.storage_options))
    fetched = Fetched(cache.absolute() / _FOLDER, repository.cache_max_bytes, downloads)
    origin = RemoteOrigin(repository.path, fetched)
    origin.prune(in_use, since)
    return origin
