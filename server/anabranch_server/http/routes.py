"""Which URLs are hot: the table that sends a request past ASGI, and what a route is.

A further protocol (TensorFlow Serving, say) is one more `HotRoute` in the table.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple
from typing import Protocol as Interface
from urllib.parse import unquote_to_bytes

from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import Protocol
from anabranch_server.oip import CallOptions, Reply

__all__ = ["Asked", "Encode", "HotRoute", "HotRoutes", "Named", "Target"]

_REMEMBERED: Final = 1024
_ORIGIN: Final = re.compile(rb"\Ahttps?://[^/]*")  # proxies send whole URLs (RFC 9112, 3.2.2)


Encode = Callable[[Ticket], Reply]
"""Makes the body of an answer of a ticket that has its outputs; raises `AnabranchError` where they
have no form."""

Named = Literal["any", "version", "label"]
"""What a URL says that its selector is."""

_NAMED: Final[tuple[Named, ...]] = ("version", "label")


class Asked(NamedTuple):
    """What a route made of a body.

    Attributes:
        request: to compute.
        encode: makes the answer.
        is_empty: whether there is nothing to compute, so that no group need see it.
    """

    request: ScoreRequest
    encode: Encode
    is_empty: bool = False


class HotRoute(Interface):
    """One protocol's way from a body to a request, and from outputs to an answer.

    Attributes:
        protocol: its name in metrics.
        path: matches a whole path, still percent-encoded; group `model`, and where it names one,
            group `version`, `label`, or `selector` for either.
    """

    protocol: Protocol
    path: re.Pattern[bytes]

    def decode(
        self,
        body: bytes | bytearray,
        json_bytes: int | None,
        served: ServedVersion,
        options: CallOptions,
    ) -> Asked:
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
        named: which of them it must be.
    """

    route: HotRoute
    model: str
    selector: str
    named: Named = "any"


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
                return _target(route, match.groupdict())
        return None


def _target(route: HotRoute, groups: dict[str, bytes | None]) -> Target:
    model = _text(groups["model"] or b"")
    for named in _NAMED:
        selector = groups.get(named)
        if selector is not None:
            return Target(route, model, _text(selector), named)
    return Target(route, model, _text(groups.get("selector") or b""))


def _text(segment: bytes) -> str:
    return unquote_to_bytes(segment).decode("utf-8", "replace")
