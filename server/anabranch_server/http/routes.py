"""Which URLs are hot: the table that sends a request past ASGI, and what a route is.

A further protocol (ranking, TensorFlow Serving) is one more `HotRoute` in the table.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from typing import Protocol as Interface
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import Protocol
from anabranch_server.oip import CallOptions, Reply

__all__ = ["Encode", "HotRoute", "HotRoutes", "Target"]

_REMEMBERED: Final = 1024
_ORIGIN: Final = re.compile(rb"\Ahttps?://[^/]*")  # proxies send whole URLs (RFC 9112, 3.2.2)


Encode = Callable[[tuple[NDArray[np.generic], ...]], Reply]
"""Makes the body of an answer of its outputs; raises `AnabranchError` where they have no form."""


class HotRoute(Interface):
    """One protocol's way from a body to a request, and from outputs to an answer.

    Attributes:
        protocol: its name in metrics.
        path: matches a whole path, still percent-encoded; group `model`, and group `selector` where
            it names a version or label.
    """

    protocol: Protocol
    path: re.Pattern[bytes]

    def decode(
        self,
        body: bytes | bytearray,
        json_bytes: int | None,
        served: ServedVersion,
        options: CallOptions,
    ) -> tuple[ScoreRequest, Encode]:
        """Return the request, and how to encode its answer. Any thread.

        Args:
            body: decompressed; must not change as long as the request lives.
            json_bytes: value of `Inference-Header-Content-Length`, None without it.
            served: the version that will answer.
            options: what came beside the body.

        Raises:
            AnabranchError: the request is refused.
        """
        ...


class Target(NamedTuple):
    """What a hot URL means.

    Attributes:
        route: the protocol.
        model: as sent; not yet known to exist.
        selector: version or label as sent; empty for the default.
    """

    route: HotRoute
    model: str
    selector: str


class HotRoutes:
    """The table of hot routes. Belongs to one thread: it remembers recent URLs."""

    def __init__(self, routes: Sequence[HotRoute]) -> None:
        self._routes = tuple(routes)
        self._recent: dict[bytes, Target | None] = {}

    def find(self, url: bytes) -> Target | None:
        """Return what `url` means; None when it is not hot."""
        try:
            return self._recent[url]
        except KeyError:
            pass
        target = self._match(url)
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        self._recent[url] = target
        return target

    def _match(self, url: bytes) -> Target | None:
        path = _ORIGIN.sub(b"", url.partition(b"?")[0], count=1)
        for route in self._routes:
            match = route.path.fullmatch(path)
            if match is not None:
                groups = match.groupdict(b"")
                return Target(route, _text(groups["model"]), _text(groups.get("selector", b"")))
        return None


def _text(segment: bytes) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace")
