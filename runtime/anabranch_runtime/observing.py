"""What a session group tells whoever counts."""

from typing import Literal, Protocol

from anabranch_runtime.spans import Spans

__all__ = ["DropReason", "GroupObserver", "RestartReason", "ShedReason"]

ShedReason = Literal["queue_full", "estimated_wait", "client_limit", "priority", "draining"]
DropReason = Literal["expired", "cancelled"]
RestartReason = Literal["fault"]


class GroupObserver(Protocol):
    """Counts what happens inside a group. Safe from any thread, cheap, never raises."""

    @property
    def spans(self) -> Spans:
        """Where it is written down what takes how long; always the same."""
        ...

    def batch(self, executor: int, version: int, rows: int, requests: int, busy_s: float) -> None:
        """An executor computed one batch.

        Args:
            executor: its index in the group.
            version: version of the model that the batch belongs to.
            rows: rows of all its requests together, without padding.
            requests: how many requests met in it.
            busy_s: from staging to the answers copied out.
        """

    def shed(self, reason: ShedReason) -> None:
        """A request was refused at the queue."""

    def dropped(self, reason: DropReason) -> None:
        """A queued request was dropped before it cost compute."""

    def executor_restarted(self, reason: RestartReason) -> None:
        """The thread of an executor ended and was replaced."""
