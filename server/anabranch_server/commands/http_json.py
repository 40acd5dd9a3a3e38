"""Calls of a server's JSON routes, for commands that need nothing but a standard library."""

import http.client
import json
from typing import Final
from urllib.parse import urlsplit

from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["Answer", "call"]

_TIMEOUT_S: Final = 60.0


class Answer:
    """What a server said.

    Attributes:
        status: HTTP status.
        value: the JSON body as plain data; None where there was none.
    """

    __slots__ = ("status", "value")

    def __init__(self, status: int, value: object) -> None:
        self.status = status
        self.value = value

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status < 300

    @property
    def error(self) -> str:
        """Why it did not."""
        if isinstance(self.value, dict) and isinstance(self.value.get("error"), str):
            return f"{self.value['error']} (HTTP {self.status})"
        return f"HTTP {self.status}"


def call(url: str, path: str, body: bytes | None = None, timeout_s: float = _TIMEOUT_S) -> Answer:
    """Ask a server and return its answer.

    Args:
        url: of the server, `http://host:port`.
        path: of the route.
        body: JSON to post; None to get.
        timeout_s: how long the server may be silent.

    Raises:
        InvalidInput: the URL is not one of a server.
        Unavailable: the server cannot be reached, or does not speak JSON.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme != "http" or not host or parts.path.strip("/"):
        raise InvalidInput(f"URL {url!r}: expected http://HOST:PORT")
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        return Answer(response.status, json.loads(data) if data else None)
    except json.JSONDecodeError:
        raise Unavailable(f"{url} does not answer as an anabranch server does") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unavailable(
            f"{url} cannot be reached: {reason}; is a server running there, and is this its port?"
        ) from None
    finally:
        connection.close()
