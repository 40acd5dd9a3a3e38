"""When what is served is loaded once more, because a worker could not build it."""

from typing import Final

__all__ = ["Mending"]

_FIRST_RETRY_S: Final = 10.0
_LAST_RETRY_S: Final = 600.0


class Mending:
    """How often mending a model failed, and when it is tried next. `now_s` is the loop's clock."""

    def __init__(self) -> None:
        self._failures = 0
        self._next_s = 0.0

    @property
    def next_s(self) -> float:
        """When it may be tried next."""
        return self._next_s

    def is_due(self, now_s: float) -> bool:
        """Whether it may be tried now."""
        return now_s >= self._next_s

    def failed(self, now_s: float) -> None:
        """Try again later, and later each time."""
        self._next_s = now_s + min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(self._failures, 10))
        self._failures += 1

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures, self._next_s = 0, 0.0
