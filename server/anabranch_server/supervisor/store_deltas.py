"""Which deltas of a version its store shows at once, and which changes lead to others.

Bookkeeping on plain values: no thread, clock or memory.
"""

from collections.abc import Collection, Sequence

from anabranch_server.processes.plans import GenerationPlan, RunPlan, VersionPlan

__all__ = ["ReadableDeltas", "following"]


class ReadableDeltas:
    """Where the rows of deltas can be read; those of the newest one are always there.

    Args:
        delta: that the store begins with.
        place: of its rows.

    Attributes:
        newest: the delta that further ones are applied to.
    """

    def __init__(self, delta: int, place: GenerationPlan) -> None:
        self.newest = delta
        self._places = {delta: place}  # what was served last is at the end

    def __contains__(self, delta: int) -> bool:
        """Whether the rows of a delta can be read."""
        return delta in self._places

    @property
    def numbers(self) -> tuple[int, ...]:
        """The deltas, rising."""
        return tuple(sorted(self._places))

    @property
    def places(self) -> Collection[GenerationPlan]:
        """Where their rows are."""
        return self._places.values()

    def at(self, delta: int) -> GenerationPlan:
        """Return where the rows of a delta are; it is one of them."""
        return self._places[delta]

    def go_on(self, delta: int, place: GenerationPlan) -> None:
        """The rows of `delta` are there too, and newer ones follow on them."""
        self.newest = delta
        self._places[delta] = place

    def begin_anew(self, delta: int, place: GenerationPlan) -> None:
        """The rows of `delta` are in another generation, and nowhere else any."""
        self.newest = delta
        self._places = {delta: place}

    def serve(self, delta: int, retain: int) -> None:
        """Note what is served now, and forget what would be one too many.

        Args:
            delta: what is served.
            retain: how many deltas stay that were served before, beside it and the newest.
        """
        self._places[delta] = self._places.pop(delta)
        others = [one for one in self._places if one not in (delta, self.newest)]
        for one in others[: max(0, len(others) - retain)]:
            del self._places[one]


def following(version: VersionPlan, delta: int) -> Sequence[RunPlan] | None:
    """Return the runs that make the rows of a version of those that it had at `delta`.

    Args:
        version: as it is to be.
        delta: that its rows are at.

    Returns:
        Runs to be applied in this order, as one change; none where the rows stay as they are. None
        where no runs begin just there: only a fresh generation gets to those rows.
    """
    if version.delta < delta:
        return None
    increment = version.increment
    if increment is not None and (increment.first, increment.last) == (delta + 1, version.delta):
        return (increment,)
    later = tuple(run for run in version.runs if run.last > delta)
    return later if all(run.first > delta for run in later) else None
