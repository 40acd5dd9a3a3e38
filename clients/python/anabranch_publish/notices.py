"""Telling servers that there is something new, so that they need not find it by looking."""

import http.client
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote, urlsplit

from anabranch_wire.errors import InvalidInput

__all__ = ["Notices"]

_TIMEOUT_S: Final = 2.0
_AT_A_TIME: Final = 16
_logger = logging.getLogger("anabranch_publish")


class Notices:
    """Admin ports of the servers that are told. For one thread."""

    def __init__(self, urls: str | Sequence[str], model: str) -> None:
        """Raises `InvalidInput` if a URL is not one of an admin port.

        Args:
            urls: `http://HOST:PORT` of one server, or of several.
            model: whose folder they are to look at.
        """
        self._urls = (urls,) if isinstance(urls, str) else tuple(urls)
        self._path = f"/admin/v1/models/{quote(model, safe='')}/reload"
        for url in self._urls:
            _address(url)

    def send(self) -> None:
        """Tell every server; one that cannot be told is logged, and finds out by itself."""
        if not self._urls:
            return
        with ThreadPoolExecutor(min(_AT_A_TIME, len(self._urls))) as threads:
            for url, failure in zip(self._urls, threads.map(self._post, self._urls), strict=True):
                if failure:
                    _logger.warning(
                        "%s was not told of what is published: %s; it looks by itself later",
                        url, failure,
                    )  # fmt: skip

    def _post(self, url: str) -> str:
        """Return why a server was not told; "" where it was."""
        host, port = _address(url)
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            connection.request(
                "POST", self._path, b'{"wait_s": 0}', {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            text = answer.read()
            return "" if answer.status < 300 else f"HTTP {answer.status} {text[:200]!r}"
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__
        finally:
            connection.close()


def _address(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme != "http" or not host or parts.path.strip("/"):
        raise InvalidInput(f"URL {url!r}: expected http://HOST:PORT of an admin port")
    return host, port
