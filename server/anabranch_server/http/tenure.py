"""How long connections stay: until they are old, or until one has to go for the others' sake."""

import math
import random
from collections.abc import Callable
from typing import Final

__all__ = ["Tenure"]

_JITTER: Final = 0.1


class Tenure:
    """What the connections of a door are told together. Belongs to one event loop.

    Args:
        max_age_s: age at which a connection closes after an answer; 0 never.
        on_closed: called for each connection that is over.

    Attributes:
        surplus: connections that are to close after their next answer, whichever come first.
        on_closed: as given.
    """

    def __init__(
        self, max_age_s: float = 0.0, on_closed: Callable[[], None] = lambda: None
    ) -> None:
        self._max_age_s = max_age_s
        self.surplus = 0
        self.on_closed = on_closed

    def age_s(self) -> float:
        """Draw the age of a connection: those that came together do not leave together."""
        if not self._max_age_s:
            return math.inf
        return self._max_age_s * random.uniform(1 - _JITTER, 1 + _JITTER)
