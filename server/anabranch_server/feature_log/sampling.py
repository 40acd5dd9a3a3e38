"""Which requests are logged: a share of them, chosen by their ids.

Invariant: the same id is decided the same way in every worker and after every restart.
"""

import hashlib
from typing import Final

__all__ = ["Sampling"]

_BYTES: Final = 8
_ALL: Final = 1 << (8 * _BYTES)


class Sampling:
    """Chooses requests. Immutable; any thread may call it.

    Args:
        share: of requests that are chosen, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._below = int(share * _ALL)

    def takes(self, request_id: str) -> bool:
        """Whether the request of this id is chosen: its BLAKE2b hash is among the lowest."""
        digest = hashlib.blake2b(request_id.encode(), digest_size=_BYTES).digest()
        return int.from_bytes(digest, "little") < self._below
