"""What readers of JSON requests share: bare tokens that strict JSON lacks, and faults in words."""

import re
from typing import Final

__all__ = ["explained", "without_bare_tokens"]

_BARE_TOKENS: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"?|NaN|-?Infinity', re.DOTALL)
_QUOTE: Final = ord('"')
_BARE: Final = (b"NaN", b"Infinity")


def without_bare_tokens(source: bytes) -> bytes | None:
    """Return a document with fractions of the same length in place of NaN, Infinity and -Infinity.

    Everything keeps its place, so that a value can be taken from `source` where it was found here.
    Where an integer is expected, a fraction is as much at fault as a token.

    Returns:
        None where there are no such tokens.
    """
    if not any(token in source for token in _BARE):
        return None
    stand_ins = bytearray(source)
    for match in _BARE_TOKENS.finditer(source):
        begin, end = match.span()
        if source[begin] != _QUOTE:
            stand_ins[begin:end] = b"1.".ljust(end - begin, b"5")
    return bytes(stand_ins)


def explained(fault: Exception) -> str:
    """Return msgspec's words with the place first: `inputs[0].shape[1]: expected int, got str`.

    Args:
        fault: what decoding a request raised: `msgspec.DecodeError` or `RecursionError`.
    """
    if isinstance(fault, RecursionError):
        return "request JSON: nested too deeply"
    reason, _, place = str(fault).partition(" - at `$")
    reason = reason.replace("`", "")
    if reason.startswith("Object missing required field "):
        reason = f"missing field {reason.rpartition(' ')[2]!r}"
    elif reason.startswith(("Expected", "Invalid", "Input")):
        reason = reason[0].lower() + reason[1:]
    place = place.rstrip("`").removeprefix(".")
    return f"request JSON: {place}: {reason}" if place else f"request JSON: {reason}"
