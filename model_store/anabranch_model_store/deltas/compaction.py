"""Runs merged into longer ones, so that a start replays few, however many deltas there were.

Tiers as in log-structured merge trees (O'Neil et al., 1996): a run of n deltas has the level
⌊log8 n⌋, and where eight of a level follow each other they become one. Of n deltas at most
7 (⌊log8 n⌋ + 1) runs are left, 42 of 86,400; a row is written once when its delta is applied, and
then once for each level, five times for 86,400, less what the same keys have in common.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.targets import Run
from anabranch_wire.errors import AnabranchError

__all__ = ["Compactor", "next_merge"]

_log = logging.getLogger(__name__)

_FAN_IN: Final = 8
_MOST: Final = 64
"""Runs that are merged at a time, each of which is a mapped file."""


def next_merge(runs: Sequence[Run], fan_in: int = _FAN_IN) -> tuple[Run, ...]:
    """Return the runs that become one next; none where there are few enough.

    A short run that lies before longer ones counts as one of those.

    Args:
        runs: one after the other, the oldest first.
        fan_in: how many of a level become one.
    """
    group: list[Run] = []
    level = -1
    for run in reversed(runs):
        own = max(level, _level(run.last - run.first + 1, fan_in))
        if own > level and len(group) >= fan_in:
            break
        if own > level:
            group, level = [], own
        group.append(run)
    if len(group) < fan_in:
        return ()
    return tuple(reversed(group))[:_MOST]


class Compactor:
    """A thread that merges runs while nothing else is to be done.

    `offer`, `held_up` and `close` are for one thread, whoever applies deltas.

    Args:
        cache: of the runs; what it holds may be used by other threads meanwhile.
    """

    def __init__(self, cache: RunCache) -> None:
        self._cache = cache
        self._offered: dict[str, tuple[Run, ...]] = {}
        self._changed = threading.Condition()
        self._is_ending = False
        self._is_held_up = False
        self._thread: threading.Thread | None = None

    def offer(self, identity: str, runs: Sequence[Run]) -> None:
        """Have runs of a version merged, as far as that is due.

        Args:
            identity: of the version.
            runs: that the deltas it is at have become, from the first delta on.
        """
        with self._changed:
            self._offered[identity] = tuple(runs)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="compaction", daemon=True)
            self._thread.start()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Have no run merged in the block: what is at work stops within some milliseconds."""
        with self._changed:
            self._is_held_up = True
        try:
            yield
        finally:
            with self._changed:
                self._is_held_up = False
                self._changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing is left to be merged; for tests, and whoever measures."""
        with self._changed:
            self._changed.wait_for(lambda: not self._offered)

    def close(self) -> None:
        """Give up what is at work, and wait for the thread."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._offered or self._is_ending)
                if self._is_ending:
                    return
                identity, runs = next(iter(self._offered.items()))
            is_done = True
            try:
                is_done = not self._merge(identity, runs)
            except _GivenUp:
                return
            except (AnabranchError, OSError) as error:  # tried again after the next delta
                _log.warning("runs stay as they are: %s", error, extra={"event": "runs_not_merged"})
            with self._changed:
                if is_done and self._offered.get(identity) == runs:
                    del self._offered[identity]
                self._changed.notify_all()

    def _merge(self, identity: str, offered: Sequence[Run]) -> bool:
        """Merge what is due first; whether there was anything."""
        self._go_on()
        runs = next_merge(self._cache.part_of(identity, offered))
        if runs:
            self._cache.merge(identity, runs, self._go_on)
        return bool(runs)

    def _go_on(self) -> None:
        """Wait while it is held up.

        Raises:
            _GivenUp: there is an end to it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_ending or not self._is_held_up)
            if self._is_ending:
                raise _GivenUp


class _GivenUp(Exception):
    """The thread is to end."""


def _level(deltas: int, fan_in: int) -> int:
    level = 0
    while deltas >= fan_in:
        deltas //= fan_in
        level += 1
    return level
