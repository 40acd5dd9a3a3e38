"""The files of the log that are being written: a file for each version, begun, filled, ended.

Invariant: rows are in a file that has its name, or counted as failed.
"""

import logging
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from anabranch_server.feature_log.batches import batches_of, schema_of
from anabranch_server.feature_log.entries import Entry
from anabranch_server.feature_log.files import LogFile, Naming, remove_leftovers
from anabranch_server.feature_log.results import LogObserver
from anabranch_wire.errors import AnabranchError

__all__ = ["Writing"]

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 10.0
_IDLE_S: Final = 60.0

_Version = tuple[str, int]


class Writing:
    """Belongs to one thread, but for the constructor.

    Args:
        folder: of the log.
        worker: index of this process among the workers.
        observer: is told what was written and what was not.
    """

    def __init__(self, folder: Path, worker: int, observer: LogObserver) -> None:
        self._folder = folder
        self._observer = observer
        self._naming = Naming(folder, worker)
        self._files: dict[_Version, LogFile] = {}
        self._paused_until = 0.0

    def begin(self) -> None:
        """Import what takes long, and take away what dead processes left."""
        import_module("pyarrow.parquet")
        with suppress(OSError):
            remove_leftovers(self._folder, time.time())

    def wait_s(self) -> float:
        """How long nothing has to be done."""
        now = time.monotonic()
        return max(0.0, min([_IDLE_S, *[file.due - now for file in self._files.values()]]))

    def write(self, entry: Entry) -> None:
        """Add a request to the file of its version; after a failure some are given up untried.

        Raises:
            Exception: this request cannot be written down; the file goes on without it.
        """
        at = (entry.snapshot.model, entry.snapshot.version)
        if time.monotonic() < self._paused_until:
            self._observer.feature_log(at[0], "failed", 1)
            return
        try:
            file = self._files.get(at) or self._begun(at, entry)
        except (OSError, AnabranchError) as error:
            self._give_up(at, error, entry)
            return
        for batch in batches_of(entry, file.schema):
            try:
                file.add(batch)
            except OSError as error:
                self._give_up(at, error, entry)
                return
        file.requests += 1

    def end_due(self) -> None:
        """End the files that are large or old enough."""
        now = time.monotonic()
        for at in [at for at, file in self._files.items() if file.is_due(now)]:
            self._end(at)

    def end_all(self) -> None:
        """End every file."""
        for at in list(self._files):
            self._end(at)

    def _begun(self, at: _Version, entry: Entry) -> LogFile:
        path = self._naming.next(entry.snapshot, entry.time)
        file = self._files[at] = LogFile(path, schema_of(entry), time.monotonic())
        return file

    def _end(self, at: _Version) -> None:
        try:
            self._files[at].finish()
        except OSError as error:
            self._give_up(at, error)
        else:
            self._observer.feature_log(at[0], "written", self._files.pop(at).requests)

    def _give_up(
        self, at: _Version, error: OSError | AnabranchError, entry: Entry | None = None
    ) -> None:
        """Drop a file with all its rows, and try none for a while."""
        file = self._files.pop(at, None)
        requests = 0 if entry is None else 1
        if file is not None:
            requests += file.requests
            file.discard()
        self._paused_until = time.monotonic() + _PAUSE_S
        self._observer.feature_log(at[0], "failed", requests)
        reason = error.message if isinstance(error, AnabranchError) else error.strerror or error
        _log.error(
            "the feature log in %s cannot be written: %s; %d requests of %s are lost to it",
            self._folder,
            reason,
            requests,
            at[0],
            extra={"event": "feature_log_failed", "model": at[0], "requests": requests},
        )
