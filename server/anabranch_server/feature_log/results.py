"""What becomes of sampled requests, and who is told."""

from typing import Literal, Protocol

__all__ = ["LogObserver", "LogResult"]

LogResult = Literal["written", "dropped", "failed"]
"""`written` once the file is whole; `dropped` where the queue was full; `failed` where it could not
be written."""


class LogObserver(Protocol):
    """Counts sampled requests. Safe from any thread, never raises."""

    def feature_log(self, model: str, result: LogResult, requests: int) -> None:
        """So many requests of a model were written, dropped or failed."""
