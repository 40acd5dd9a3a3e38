"""Which shared word means what: one page of epochs, one page of what workers have to do.

The epoch page is written by the supervisor alone: word `slot` is the current epoch of the model
with that slot, 0 while it has none. The balance page is about HTTP connections; worker i alone
writes its words, but for `sent`, to which its siblings add, and `accepting`, which the launcher
clears when the worker has died:

    open(i)         connections that worker i holds
    queue(i)        requests that wait or are computed in worker i
    accepting(i)    1 while worker i takes connections, else 0
    sent(i)         connections that siblings handed to worker i, ever
    received(i)     connections that worker i took from its inbox, ever

What worker i holds or is about to hold is `open(i) + sent(i) - received(i)`.
"""

from typing import Final

__all__ = ["MODEL_SLOTS", "BalanceLayout"]

MODEL_SLOTS: Final = 4096
"""Words of the epoch page: models that a server can have."""


class BalanceLayout:
    """Indexes of the balance page's words.

    Args:
        workers: number of workers, at least 1.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @property
    def words(self) -> int:
        """Size of the page in words."""
        return 5 * self.workers

    def open(self, worker: int) -> int:
        """Return the index of `open`."""
        return worker

    def queue(self, worker: int) -> int:
        """Return the index of `queue`."""
        return self.workers + worker

    def accepting(self, worker: int) -> int:
        """Return the index of `accepting`."""
        return 2 * self.workers + worker

    def received(self, worker: int) -> int:
        """Return the index of `received`."""
        return 3 * self.workers + worker

    def sent(self, worker: int) -> int:
        """Return the index of `sent`."""
        return 4 * self.workers + worker
