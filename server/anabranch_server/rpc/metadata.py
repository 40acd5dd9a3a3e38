"""Invocation metadata that the gRPC door reads: request id and timeout."""

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch_wire.errors import InvalidInput

__all__ = ["CallMetadata", "read_metadata"]

_TIMEOUT_DIGITS = 12


@dataclass(frozen=True, slots=True)
class CallMetadata:
    """What a caller said beside the message, as sent; None where nothing was.

    Attributes:
        request_id: `x-request-id`.
        timeout_ms: `anabranch-timeout-ms`.
    """

    request_id: str | bytes | None = None
    timeout_ms: str | bytes | None = None

    def timeout_s(self) -> float | None:
        """Return the timeout in seconds.

        Raises:
            InvalidInput: it is not a decimal number of milliseconds above 0.
        """
        sent = self.timeout_ms
        if sent is None:
            return None
        text = sent.decode("latin-1") if isinstance(sent, bytes) else sent
        if 0 < len(text) <= _TIMEOUT_DIGITS and text.isascii() and text.isdigit() and int(text):
            return int(text) / 1000
        raise InvalidInput(
            f"anabranch-timeout-ms {text[:40]!r}: expected decimal digits, at least 1"
        )


def read_metadata(entries: Iterable[tuple[str, str | bytes]] | None) -> CallMetadata:
    """Pick the entries this server knows; of a repeated key the last one counts."""
    request_id: str | bytes | None = None
    timeout_ms: str | bytes | None = None
    for key, value in entries or ():
        if key == "x-request-id":
            request_id = value
        elif key == "anabranch-timeout-ms":
            timeout_ms = value
    return CallMetadata(request_id, timeout_ms)
