"""A folder on another machine, by any file system that fsspec knows.

Whatever such a file system raises becomes an error of the tree here, and nowhere else. Messages
never hold what storage options say.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Final, Protocol, cast

from anabranch_wire.errors import AnabranchError, TooLarge, Unavailable
from anabranch_wire.places import is_url

__all__ = ["Entry", "RemoteFolder"]

_SHOWN: Final = 300
_UNSATISFIABLE: Final = 416
_UNSATISFIABLE_WORDS: Final = "range is not satisfiable"
_SECRET_LENGTH: Final = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a remote folder.

    Attributes:
        is_folder: whether it is a folder.
        tag: another one when its content changes; "" where the file system has none.
        size: bytes; None where the file system does not tell.
    """

    is_folder: bool
    tag: str = ""
    size: int | None = None


class _FileSystem(Protocol):
    """What is asked of an fsspec file system."""

    def invalidate_cache(self) -> None: ...
    def ls(self, path: str, detail: bool) -> list[dict[str, object]]: ...
    def cat_file(self, path: str, start: int, end: int) -> bytes: ...


class RemoteFolder:
    """Reads below one URL; paths are relative to it, with `/`. Any thread may call it.

    Args:
        url: as `check_url` returned it.
        options: of the file system, credentials among them.
    """

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        self.url = url
        self._options = options
        self._opened: tuple[_FileSystem, str] | None = None

    def names(self, path: str) -> dict[str, Entry]:
        """Return what lies in a folder, by name; nothing where there is no such folder.

        Raises:
            Unavailable: the store does not answer, or refuses.
        """
        with self._asking(path):
            files, root = self._files()
            files.invalidate_cache()
            place = _joined(root, path)
            try:
                listed = files.ls(place, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
            found: dict[str, Entry] = {}
            for one in listed:
                name = str(one["name"]).rstrip("/").rpartition("/")[2]
                if str(one["name"]).strip("/") != place.strip("/"):  # a folder may list itself
                    size = one.get("size")
                    found[name] = Entry(
                        one["type"] == "directory",
                        _tag(one),
                        size if isinstance(size, int) else None,
                    )
            return found

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return a file; None where there is none.

        Raises:
            TooLarge: it has more than `max_bytes`.
            Unavailable: the store does not answer, or refuses.
        """
        data = self.read_range(path, 0, max_bytes + 1)
        if data is not None and len(data) > max_bytes:
            raise TooLarge(f"{path}: more than {max_bytes} bytes")
        return data

    def read_range(self, path: str, begin: int, end: int) -> bytes | None:
        """Return bytes of a file, fewer where it ends before; None where there is none.

        Raises:
            Unavailable: the store does not answer, or refuses.
        """
        with self._asking(path):
            files, root = self._files()
            try:
                data = files.cat_file(_joined(root, path), start=begin, end=end)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except Exception as error:  # stores have no range of an empty file
                if _is_unsatisfiable(error):
                    return b""
                raise
            return bytes(data)

    def _files(self) -> tuple[_FileSystem, str]:
        if self._opened is None:
            fsspec = import_module("fsspec")
            files, root = fsspec.core.url_to_fs(self.url, **self._options)
            self._opened = (cast(_FileSystem, files), root)
        return self._opened

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        try:
            yield
        except AnabranchError:
            raise
        except Exception as error:  # file systems raise whatever their libraries do
            text = " ".join(f"{type(error).__name__}: {error}".split())
            for secret in _secrets(self._options):
                text = text.replace(secret, "***")
            place = f"{self.url}/{path}" if path else self.url
            raise Unavailable(f"{place}: {text[:_SHOWN]}") from None


def _joined(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def _tag(listed: Mapping[str, object]) -> str:
    for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime"):
        if listed.get(key):
            return f"{listed[key]} {listed.get('size')}"
    return ""


def _is_unsatisfiable(error: Exception) -> bool:
    """Whether a store says that a file ends before the range that was asked for.

    A number in the text says nothing: it may be part of a port or of a name.
    """
    if _UNSATISFIABLE in (getattr(error, "status", None), getattr(error, "code", None)):
        return True
    return _UNSATISFIABLE_WORDS in str(error)


def _secrets(options: object) -> Iterator[str]:
    """Yield every text in storage options that is long enough to be one."""
    if isinstance(options, Mapping):
        for value in options.values():
            yield from _secrets(value)
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _secrets(value)
    elif isinstance(options, str) and len(options) >= _SECRET_LENGTH and not is_url(options):
        yield options
