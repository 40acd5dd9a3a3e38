"""Which source a repository has."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch_server.config import RepositoryConfig, WatchConfig
from anabranch_server.sources.local_source import LocalSource
from anabranch_server.sources.remote_source import RemoteSource, SourceCounts
from anabranch_server.sources.source import NoSource, Source

if TYPE_CHECKING:
    from anabranch_model_store.sources.mirrors import Mirror

__all__ = ["new_source"]


def new_source(
    repository: RepositoryConfig,
    watch: WatchConfig,
    on_change: Callable[[], None],
    counts: SourceCounts | None,
) -> Source:
    """Return what brings news of a repository.

    Args:
        repository: which one.
        watch: how new versions are noticed.
        on_change: called on the event loop when its folder has changed.
        counts: of a remote one, told what becomes of looks at it.
    """
    if repository.url is not None:
        told = SourceCounts() if counts is None else counts
        return RemoteSource(lambda: _open_mirror(repository), watch.poll_s, on_change, told)
    if watch.inotify:
        return LocalSource(repository.path, repository.models, on_change)
    return NoSource()


def _open_mirror(repository: RepositoryConfig) -> "Mirror":
    # Those who serve a folder need none of it.
    from anabranch_model_store.sources.mirrors import Mirror
    from anabranch_model_store.sources.remote_folders import RemoteFolder

    assert repository.url is not None, "only remote repositories are mirrored"
    remote = RemoteFolder(repository.url, repository.storage_options)
    return Mirror(remote, repository.path, repository.models)
