"""What outlives a process: counters of dead workers, and how often workers were started again.

Invariant: a dead worker's counters are added once. They lie in a file of the run folder, so that
they also outlive the supervisor; the file counts for one launcher alone.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from anabranch_runtime.counters import Series
from anabranch_server.folders import own_folder
from anabranch_server.metrics.sums import added_up
from anabranch_wire.errors import AnabranchError

__all__ = ["EXITED", "Totals"]

_log = logging.getLogger(__name__)

EXITED: Final = "exited"
"""Why a worker was started again that ended without this server's doing."""


class _File(msgspec.Struct):
    launch: str
    series: list[Series] = []
    restarts: dict[str, int] = {}
    incarnations: dict[int, int] = {}


class Totals:
    """Belongs to one thread.

    Args:
        path: the file; need not be there.
        launch: name of the running launcher; what an earlier one left is dropped.
        own: what this process counts itself; it is kept for the next one when the file is written.
    """

    def __init__(
        self, path: Path, launch: str, own: Callable[[], Iterable[Series]] = tuple
    ) -> None:
        self._path = path
        self._own = own
        kept = _read(path, launch)
        self._launch = launch
        self._series = kept.series
        self._restarts: Counter[str] = Counter(kept.restarts)
        self._incarnations = kept.incarnations
        self._ends: dict[int, str] = {}
        self._saved: list[Series] = []

    def all_series(self) -> list[Series]:
        """Return what dead processes counted, and what this one does."""
        return added_up([self._series, self._own()])

    @property
    def restarts(self) -> Mapping[str, int]:
        """Reason -> how often a worker was started again for it."""
        return self._restarts

    def started(self, index: int, incarnation: int) -> None:
        """Note that a worker lives, and count its lives since the last that was seen."""
        again = incarnation - self._incarnations.get(index, 1)
        self._incarnations[index] = incarnation
        if again > 0:
            self._restarts[self._ends.pop(index, EXITED)] += 1
            if again > 1:
                self._restarts[EXITED] += again - 1
            self.save()

    def ended(self, index: int, reason: str, counted: Iterable[Series]) -> None:
        """Note why a worker died, and keep what it counted."""
        self._ends[index] = reason
        self._series = added_up([self._series, [one for one in counted if one.kind != "gauge"]])
        self.save()

    def prune(self, is_over: Callable[[Series], bool]) -> None:
        """Drop the series that nobody wants to see again."""
        self._series = [one for one in self._series if not is_over(one)]

    def save_if_changed(self) -> None:
        """Write the file where this process has counted something since it was written."""
        if list(self._own()) != self._saved:
            self.save()

    def save(self) -> None:
        """Write the file; that it cannot be written is said, and costs nothing but the totals."""
        content = _File(self._launch, self.all_series(), dict(self._restarts), self._incarnations)
        self._saved = list(self._own())
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            own_folder(self._path.parent)  # somebody may have taken it away
            beside.write_bytes(msgspec.msgpack.encode(content))
            beside.replace(self._path)
        except (OSError, AnabranchError) as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            reason = error.strerror if isinstance(error, OSError) else error.message
            _log.warning("totals of dead workers cannot be kept: %s", reason)


def _read(path: Path, launch: str) -> _File:
    try:
        kept = msgspec.msgpack.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File(launch)
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("totals of dead workers cannot be read: %s", error)
        return _File(launch)
    return kept if kept.launch == launch else _File(launch)
