"""URLs of repositories: which there are, how they are written, what they are called on disk.

A URL is logged and shown. So it holds no credentials; those come with the environment, or with
storage options.
"""

import hashlib
from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

from anabranch_wire.errors import InvalidInput, Unsupported

__all__ = ["check_url", "url_digest"]

_LOCAL: Final = frozenset({"file", "local"})
_EXTRAS: Final = {"s3": "anabranch[s3]", "s3a": "anabranch[s3]"}
_DIGITS: Final = 16


def check_url(text: str) -> str:
    """Return a URL without slashes at its end, if this machine can reach such ones.

    Raises:
        InvalidInput: it names no place, or holds credentials.
        Unsupported: nothing that is installed reads such URLs; says what to install.
    """
    protocol, _, place = text.partition("://")
    shown = f"{protocol[:20]}://..."
    if protocol in _LOCAL:
        raise InvalidInput(f"{shown}: name the folder itself, as in {place[:200] or '/models'}")
    place = place.rstrip("/")
    if not place or place.startswith("/"):
        raise InvalidInput(f"{shown}: expected a place, such as s3://bucket/models")
    parts = urlsplit(f"any://{place}")
    if "@" in parts.netloc and ":" in parts.netloc.rpartition("@")[0]:
        raise InvalidInput(
            f"{shown}: holds credentials, which logs would show: give them by the environment, or "
            "by storage_options"
        )
    if parts.query or parts.fragment:
        raise InvalidInput(f"{shown}: expected nothing behind ? or #: use storage_options")
    _check_protocol(protocol)
    return f"{protocol}://{place}"


def url_digest(url: str) -> str:
    """Return the name of what is kept of a URL's repository on this machine."""
    return hashlib.sha256(url.encode()).hexdigest()[:_DIGITS]


def _check_protocol(protocol: str) -> None:
    fsspec = import_module("fsspec")  # takes a while, which only those with a URL wait for
    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise Unsupported(
            f"{protocol[:20]}://: nobody here reads such URLs; expected s3, gs, abfs or another "
            "that fsspec knows"
        ) from None
    except ImportError as error:
        wanted = _EXTRAS.get(protocol)
        remedy = f"pip install '{wanted}'" if wanted else str(error)
        raise Unsupported(f"{protocol}:// needs a package that is missing: {remedy}") from None
