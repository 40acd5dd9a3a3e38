"""A model at a URL, for as long as it is looked at: its documents here, its files when needed."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from anabranch_model_store.deltas.origins import Origin
from anabranch_model_store.sources.downloads import Downloads
from anabranch_model_store.sources.fetched import Fetched
from anabranch_model_store.sources.mirrors import Mirror
from anabranch_model_store.sources.remote_folders import RemoteFolder
from anabranch_model_store.sources.remote_origin import RemoteOrigin
from anabranch_model_store.sources.urls import check_url
from anabranch_wire.errors import InvalidInput, NotFound, Unavailable
from anabranch_wire.names import check_model_name

__all__ = ["remote_model"]

_NO_LIMIT: Final = 1 << 62
"""What is fetched goes with the temporary folder."""


@contextmanager
def remote_model(url: str, options: Mapping[str, object]) -> Iterator[tuple[Path, Origin]]:
    """Mirror a model; return its folder, and what brings the files of it.

    Everything goes into a temporary folder, which is removed at the end.

    Args:
        url: of the model's folder.
        options: of the file system, credentials among them.

    Raises:
        InvalidInput, Unsupported: the URL is refused.
        NotFound: no such model lies there; or the block that uses it misses a part of it.
        Unavailable: the store does not answer, or there is no room; or something is missed, and
            the store refused to send or list something of the model, which the message names.
    """
    repository, _, name = check_url(url).rpartition("/")
    if repository.endswith("/"):
        raise InvalidInput(f"{url}: expected a model in a repository, as s3://bucket/models/ctr")
    model = check_model_name(name)
    remote = RemoteFolder(repository, options)
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-diff-") as folder:
            skeleton = Path(folder) / "skeleton"
            with closing(Mirror(remote, skeleton, only=(model,))) as mirror:
                while mirror.look():
                    pass  # a look takes a few versions at a time
                faults = list(mirror.faults.values())
            try:
                if not (skeleton / model).is_dir():
                    raise NotFound(f"{url}: no such model")
                fetched = Fetched(Path(folder) / "fetched", _NO_LIMIT, Downloads(remote))
                yield skeleton / model, RemoteOrigin(skeleton, fetched)
            except NotFound as error:
                if faults:
                    told = f"{error.message}; could not be read: {faults[0]}"
                    raise Unavailable(told) from None
                raise
    except OSError as error:
        raise Unavailable(f"temporary files cannot be made: {error.strerror}") from None
