"""The feature log of one worker: doors offer what they ranked, a thread writes it down.

Invariant: no request waits for the log or fails by it. What does not fit into its queue is dropped,
what cannot be written is given up, and both are counted.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_runtime.served import ServedVersion
from anabranch_server.feature_log.backlog import Backlog
from anabranch_server.feature_log.entries import Entry
from anabranch_server.feature_log.results import LogObserver
from anabranch_server.feature_log.sampling import Sampling
from anabranch_server.feature_log.writing import Writing

__all__ = ["FeatureLog"]

_log = logging.getLogger(__name__)

_MAX_ENTRIES: Final = 1024
_MAX_BYTES: Final = 256 << 20


class FeatureLog:
    """Takes requests from any thread, from when it is made to `close`.

    Args:
        folder: where to write; made with the first request.
        share: of requests that are logged, more than 0.
        worker: index of this process among the workers.
        observer: counts.
    """

    def __init__(self, folder: Path, share: float, worker: int, observer: LogObserver) -> None:
        self._sampling = Sampling(share)
        self._backlog = Backlog(_MAX_ENTRIES, _MAX_BYTES)
        self._observer = observer
        self._writing = Writing(folder, worker, observer)
        self._thread = threading.Thread(target=self._run, name="feature-log", daemon=True)
        self._thread.start()

    def offer(
        self,
        request_id: str,
        version: ServedVersion,
        rules: RankingRules,
        prepared: PreparedRanking,
        outputs: Mapping[str, NDArray[np.generic]],
    ) -> None:
        """Log a request that was ranked, if its id is among the sample. Never waits, never fails.

        Args:
            request_id: as echoed.
            version: what answered it.
            rules: that it was ranked by.
            prepared: its features; nobody changes its arrays any more.
            outputs: head -> its rows as the graph gave them, for all of `prepared.heads`; nobody
                changes them any more.
        """
        if not prepared.rows or not self._sampling.takes(request_id):
            return
        entry = Entry.of(request_id, version, rules, prepared, outputs)
        if not self._backlog.put(entry):
            self._observer.feature_log(version.snapshot.model, "dropped", 1)

    def close(self, wait_s: float) -> bool:
        """Write what waits, and name every file; return whether that was done in time."""
        self._backlog.close()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        writing, backlog = self._writing, self._backlog
        try:
            writing.begin()
            while not backlog.is_over:
                entry = backlog.take(writing.wait_s())
                if entry is not None:
                    self._write(entry)
                    del entry  # nothing is kept while the next one is waited for
                writing.end_due()
            writing.end_all()
        except Exception:  # the edge of the thread: requests go on without a log
            _log.exception("the feature log ends", extra={"event": "internal_error"})
            backlog.close()

    def _write(self, entry: Entry) -> None:
        try:
            self._writing.write(entry)
        except Exception:  # the edge of one request: the others are written
            self._observer.feature_log(entry.snapshot.model, "failed", 1)
            _log.exception(
                "a request cannot be logged",
                extra={"event": "internal_error", "request_id": entry.request_id},
            )
