"""Errors of the tree, rebuilt from what an HTTP door answered."""

from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch_wire import errors
from anabranch_wire.errors import AnabranchError, Overloaded

__all__ = ["error_from_http"]

_SHOWN: Final = 200  # characters of a foreign body that a message repeats

_KINDS: Final[Mapping[int, type[AnabranchError]]] = {
    400: errors.InvalidInput,
    401: errors.Unauthenticated,
    403: errors.PermissionDenied,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    408: errors.DeadlineExceeded,
    409: errors.Conflict,
    413: errors.TooLarge,
    415: errors.UnsupportedMedia,
    499: errors.Cancelled,
    500: errors.Internal,
    501: errors.Unsupported,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.DeadlineExceeded,
}


class _Body(msgspec.Struct):
    error: str


def error_from_http(status: int, body: bytes, headers: Mapping[str, str]) -> AnabranchError:
    """Return the error that an answer other than 200 stands for.

    A status that several kinds share gives the one a caller can act on: 503 with advice when to
    come back is `Overloaded`, without it `Unavailable`; 500 is `Internal`. Statuses that only
    gateways use give the nearest kind.

    Args:
        status: of the answer.
        body: `{"error": "..."}`; of anything else, a gateway's page say, the beginning is shown.
        headers: with lower-case names.
    """
    try:
        message = msgspec.json.decode(body, type=_Body).error
    except msgspec.DecodeError:
        shown = body[:_SHOWN].decode("utf-8", "replace").strip()
        message = f"HTTP {status}: {shown or 'no reason given'}"
    retry_after_s = _retry_after_s(headers)
    if status == 429 or (status == 503 and retry_after_s is not None):
        return Overloaded(message, 1.0 if retry_after_s is None else retry_after_s)
    fallback = errors.InvalidInput if 400 <= status < 500 else errors.Internal
    return _KINDS.get(status, fallback)(message)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("anabranch-retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text) * unit_s
    return None
