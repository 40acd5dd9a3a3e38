"""Places of models and repositories, as people name them: a path of this machine, or a URL."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["is_url", "local_path"]

_FILE: Final = "file://"


def is_url(text: str) -> bool:
    """Whether a text is a URL, and no path; one that begins with `file://` is a URL too."""
    return "://" in text


def local_path(place: str | Path) -> Path | None:
    """Return where a place lies on this machine; None: at a URL that leads elsewhere.

    Args:
        place: a path, or a URL; that of a file, as `file:///models/ctr`, has %-escapes.
    """
    text = str(place)
    if text.startswith(_FILE):
        return Path(unquote(urlsplit(text).path))
    return None if is_url(text) else Path(text)
