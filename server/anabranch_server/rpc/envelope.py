"""A look at a large message before protobuf parses it.

Parsing turns two bytes of an empty submessage into some sixty bytes of memory, so that a body
within its limit could still ask for gigabytes. A walk over the top-level fields counts them first;
it stops at the limit, and small messages, which cannot ask for much, are not walked.
"""

from typing import Final

from anabranch_server.limits import Limits
from anabranch_server.rpc.wire import walk
from anabranch_wire.errors import TooLarge

__all__ = ["check_envelope"]

_SMALL: Final = 65_536


def check_envelope(body: bytes, limits: Limits, what: str = "inputs and outputs") -> None:
    """Return if `body` has few enough top-level fields to be parsed.

    A request that keeps `limits.max_tensors` has at most an input, an output, a raw content and,
    generously, a parameter for each.

    Args:
        body: the message.
        limits: of requests.
        what: the fields that there may be many of, for the message.

    Raises:
        TooLarge: there are more.
        InvalidInput: the fields do not line up.
    """
    if len(body) <= _SMALL:
        return
    most = 4 * limits.max_tensors + 64
    for count, _ in enumerate(walk(body), 1):
        if count > most:
            raise TooLarge(
                f"too many fields in the message: at most {limits.max_tensors} {what} are allowed"
            )
