"""Request ids: what a caller sent if it is fit to be echoed, else one of our own.

An id that passed here may stand in a header, in gRPC metadata and in a log line as it is.
"""

import itertools
import re
import secrets
from typing import Final

__all__ = ["RequestIds"]

_FIT: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,126}[\x21-\x7e])?")


class RequestIds:
    """Accepts or makes ids. Safe from any thread.

    Made ids are unique within an instance, and by 64 random bits between instances.
    """

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    def choose(self, sent: str | bytes | None) -> str:
        """Return `sent` if it is 1 to 128 printable ASCII characters, else a new id.

        Blanks at either end make it unfit: HTTP would strip them.
        """
        if isinstance(sent, bytes):
            sent = sent.decode("latin-1")
        if sent is not None and _FIT.fullmatch(sent):
            return sent
        return self.make()

    def make(self) -> str:
        """Return a new id."""
        return f"{self._prefix}-{next(self._numbers):x}"
