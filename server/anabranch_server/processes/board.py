"""Which shared word means what: one page of epochs, one page of what workers have to do.

The epoch page is written by the supervisor alone: word `slot` is the current epoch of the model
with that slot, 0 while it has none. The balance page has words that one worker each writes:

    open(i)         connections that worker i holds
    queue(i)        requests that wait or are computed in worker i
    accepting(i)    1 while worker i takes connections, else 0
    sent(i, j)      connections that worker i handed to worker j, ever
    received(j)     connections that worker j took from its inbox, ever

What worker j holds or is about to hold is `open(j) + sum(sent(i, j) over i) - received(j)`.
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
        return self.workers * (self.workers + 4)

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

    def sent(self, source: int, target: int) -> int:
        """Return the index of `sent`."""
        return (4 + source) * self.workers + target
