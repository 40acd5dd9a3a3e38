"""Documents of a remote repository, one of which may be out of order while the others are not.

What cannot be read is said once, until it can be read again, and is not taken for missing.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from anabranch_model_store.sources.remote_folders import Entry, RemoteFolder
from anabranch_wire.errors import TooLarge, Unavailable

__all__ = ["RemoteDocuments", "Unread", "is_whole"]

_log = logging.getLogger(__name__)

_PARALLEL: Final = 16


class Unread(Exception):
    """Something could not be read or listed; it has been said."""


class RemoteDocuments:
    """Reads documents and listings of one repository. Belongs to one thread at a time.

    Args:
        remote: the repository.
    """

    def __init__(self, remote: RemoteFolder) -> None:
        self._remote = remote
        self._faults: dict[str, str] = {}
        self._answered = 0
        self._refused: dict[str, str] = {}

    @property
    def faults(self) -> Mapping[str, str]:
        """What could not be read or listed when it was last asked for, and why."""
        return self._faults

    def forget(self, place: str) -> None:
        """Forget what could not be read of something that is there no more.

        Args:
            place: a folder, with all below it.
        """
        for path in [one for one in self._faults if one == place or one.startswith(f"{place}/")]:
            del self._faults[path]

    def begin(self) -> None:
        """Begin a look."""
        self._answered, self._refused = 0, {}

    def end(self, fewest: int) -> None:
        """End a look.

        Args:
            fewest: how many refusals, of different things, mean that the store is at fault.

        Raises:
            Unavailable: so many there were, and not one document could be read.
        """
        if len(self._refused) >= fewest and not self._answered:
            raise Unavailable(next(iter(self._refused.values())))

    def names(self, path: str) -> dict[str, Entry]:
        """Return what lies in a folder, by name.

        Raises:
            Unread: it cannot be listed.
            Unavailable: neither can the repository.
        """
        try:
            found = self._remote.names(path)
        except Unavailable as error:
            raise self._noted(path, error) from None
        self._mended(path)
        return found

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return a document; None where there is none.

        Raises:
            TooLarge: it has more than `max_bytes`.
            Unread: it cannot be read.
            Unavailable: the repository cannot be listed either.
        """
        found = self.read_many([path], max_bytes)[path]
        if isinstance(found, Unread | TooLarge):
            raise found
        return found

    def read_listed(self, path: str, max_bytes: int, size: int) -> bytes:
        """Return a document that is listed with a size.

        Raises:
            TooLarge: it has more than `max_bytes`.
            Unread: it cannot be read, or fewer bytes of it are sent.
            Unavailable: the repository cannot be listed either.
        """
        found = self._read([path], max_bytes, size)[path]
        if isinstance(found, Unread | TooLarge):
            raise found
        assert found is not None, "what is listed and not sent is unread"
        return found

    def read_many(
        self, paths: Sequence[str], max_bytes: int
    ) -> dict[str, bytes | Unread | TooLarge | None]:
        """Return documents by path, several read at a time, or what `read` raises for each.

        Raises:
            Unavailable: the repository cannot be listed, and one of them cannot be read.
        """
        return self._read(paths, max_bytes) if paths else {}

    def _read(
        self, paths: Sequence[str], max_bytes: int, size: int | None = None
    ) -> dict[str, bytes | Unread | TooLarge | None]:
        def one(path: str) -> bytes | TooLarge | Unavailable | None:
            try:
                return self._remote.read(path, max_bytes)
            except (TooLarge, Unavailable) as error:
                return error

        with ThreadPoolExecutor(min(_PARALLEL, len(paths))) as pool:
            read = dict(zip(paths, pool.map(one, paths), strict=True))
        found: dict[str, bytes | Unread | TooLarge | None] = {}
        is_asked = False
        for path, data in read.items():
            if isinstance(data, Unavailable):
                found[path] = self._noted(path, data, is_asked=is_asked)
                is_asked = True
                continue
            self._answered += 1
            if size is not None and not isinstance(data, TooLarge) and _is_short(data, size):
                error = Unavailable(f"{path}: listed with {size} bytes, but {_told(data)}")
                found[path] = self._noted(path, error, is_asked=True)
            else:
                self._mended(path)
                found[path] = data
        return found

    def _noted(self, path: str, error: Unavailable, *, is_asked: bool = False) -> Unread:
        """Say what cannot be read, if the store is there at all."""
        if not is_asked:
            self._remote.names("")
        self._refused[path] = error.message
        is_new = path not in self._faults
        self._faults[path] = error.message
        if is_new:
            _log.error(
                "%s; what was mirrored of it stays",
                error.message,
                extra={"event": "repository_unreadable", "model": path.partition("/")[0]},
            )
        return Unread(error.message)

    def _mended(self, path: str) -> None:
        if path in self._faults:
            del self._faults[path]
            _log.info(
                "%s: can be read again",
                path,
                extra={"event": "repository_readable", "model": path.partition("/")[0]},
            )


def _is_short(data: bytes | None, size: int) -> bool:
    return data is None or len(data) < size


def _told(data: bytes | None) -> str:
    return "not there" if data is None else f"sent with {len(data)}"


def is_whole(data: bytes) -> bool:
    """Whether a document is there to its end: not every store shows files only when they are."""
    try:
        json.loads(data)
    except RecursionError:  # whoever decodes it says so
        return True
    except ValueError:
        return False
    return True
