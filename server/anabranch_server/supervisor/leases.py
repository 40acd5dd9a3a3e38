"""What workers may still read: the oldest epoch of each model, by worker.

Invariant: a worker that may read an epoch has a lease on it or on an older one, until it says that
it released it or its death is certain.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch_server.supervisor.effects import WorkerId

__all__ = ["Leases", "Overdue"]


@dataclass(frozen=True, slots=True)
class Overdue:
    """A lease that is held too long.

    Attributes:
        worker: who holds it.
        model: model name.
        epoch: oldest epoch that the worker may read.
        age_s: since when a newer epoch is current.
    """

    worker: WorkerId
    model: str
    epoch: int
    age_s: float


class Leases:
    """Keeps every lease. Times are of one clock, in seconds, and given by the caller."""

    def __init__(self) -> None:
        self._held: dict[str, dict[WorkerId, int]] = {}
        self._published: dict[str, dict[int, float]] = {}

    def hold(self, worker: WorkerId, model: str, epoch: int) -> None:
        """Note that a worker may read `epoch`, and whatever is newer."""
        held = self._held.setdefault(model, {})
        held[worker] = min(epoch, held.get(worker, epoch))

    def publish(self, model: str, epoch: int, now_s: float) -> None:
        """Note that `epoch` is current."""
        self._published.setdefault(model, {})[epoch] = now_s
        self._forget(model)

    def release(self, worker: WorkerId, model: str, epoch: int) -> None:
        """Note that a worker reads nothing older than `epoch`."""
        held = self._held.get(model, {})
        if worker in held:
            held[worker] = max(epoch, held[worker])
            self._forget(model)

    def drop(self, worker: WorkerId) -> None:
        """End every lease of a worker whose death is certain."""
        for model, held in self._held.items():
            if held.pop(worker, None) is not None:
                self._forget(model)

    def standing(self, model: str, now_s: float) -> tuple[int, float]:
        """Return how many workers have a lease on a model, and since when the oldest one is over.

        The time is 0 where all are on what is current.
        """
        ages = [one.age_s for one in self.overdue(now_s, 0.0) if one.model == model]
        return len(self._held.get(model, ())), max(ages, default=0.0)

    def floor(self, model: str) -> int:
        """Return the oldest epoch that anybody may read; 0 where nothing was published."""
        current = max(self._published.get(model, ()), default=0)
        return min([current, *self._held.get(model, {}).values()])

    def overdue(self, now_s: float, limit_s: float) -> Iterator[Overdue]:
        """Yield the leases whose epoch was superseded more than `limit_s` ago."""
        for model, held in self._held.items():
            published = self._published.get(model, {})
            for worker, epoch in held.items():
                superseded_s = min(
                    (at for newer, at in published.items() if newer > epoch), default=now_s
                )
                if now_s - superseded_s > limit_s:
                    yield Overdue(worker, model, epoch, now_s - superseded_s)

    def _forget(self, model: str) -> None:
        """Forget when epochs were published that nobody's lease is older than."""
        published = self._published.get(model, {})
        floor = self.floor(model)
        for epoch in [epoch for epoch in published if epoch < floor]:
            del published[epoch]
