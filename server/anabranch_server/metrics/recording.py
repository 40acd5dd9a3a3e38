"""Counting requests and batches as they happen: one dictionary look-up, one native call.

Invariants: the number of series is bounded by what the server itself knows (loaded versions, their
features, protocols, closed sets of reasons and codes), never by what callers send; series of what
is no longer loaded can be retired, and their place on the page is used again. A page that is full
loses new series, not requests, and says so once.
"""

import threading
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.counters import CountersPage
from anabranch_runtime.executor_lookups import LookupCounts
from anabranch_runtime.observing import DropReason, RestartReason, ShedReason
from anabranch_runtime.ranking.feature_program import COUNTS
from anabranch_runtime.requests import Ticket
from anabranch_runtime.spans import Spans
from anabranch_server.doors import CutReason, Protocol
from anabranch_server.feature_log.results import LogResult
from anabranch_server.metrics.names import UNKNOWN_MODEL
from anabranch_server.metrics.series import AnyRecorder, ManyRecorder, PageSeries
from anabranch_server.trace_context import TraceContext

__all__ = ["ModelCounters", "RequestCounters", "create_page"]

_STAGES: Final = ("decode", "run", "encode")
"""Stages of a request that are timed, beside the queue; in the order in which they are recorded."""
_LOOKUP: Final = "lookup"
"""A further stage, recorded last, of versions that look rows up; `run` does not count it."""

_PAGE_BYTES: Final = 32 << 20  # room for thousands of versions; memory is taken as they come


def create_page() -> CountersPage:
    """Return an empty page for the counters of one process."""
    return CountersPage.create(_PAGE_BYTES)


class RequestCounters:
    """Counts requests of one process; a `RequestObserver`. Safe from any thread.

    Recorders are made on first use under a lock and from then on found without one.
    """

    def __init__(self, page: CountersPage, catalog: Catalog) -> None:
        self._series = PageSeries(page)
        self._catalog = catalog
        self._lock = threading.Lock()
        self._scored: dict[tuple[str, int, Protocol, bool], AnyRecorder] = {}
        self._failed: dict[tuple[str, Protocol, str], AnyRecorder] = {}
        self._open: dict[Protocol, int] = {}
        self._open_recorders: dict[Protocol, AnyRecorder] = {}
        self._shed: dict[tuple[str, ShedReason], AnyRecorder] = {}
        self._cut: dict[tuple[Protocol, CutReason], AnyRecorder] = {}
        self._ranked: dict[tuple[str, tuple[str, ...]], ManyRecorder] = {}
        self._logged: dict[tuple[str, LogResult], AnyRecorder] = {}

    def scored(
        self,
        ticket: Ticket,
        protocol: Protocol,
        received: float,
        written: float,
        bytes_in: int,
        bytes_out: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """Count a scored answer; see `RequestObserver`."""
        version = ticket.version
        snapshot, looks_up = version.snapshot, version.source is not None
        key = (snapshot.model, snapshot.version, protocol, looks_up)
        recorder = self._scored.get(key) or self._make_scored(key)
        submitted, finished = ticket.submitted, ticket.finished
        started = ticket.started or finished
        run_s = finished - started
        lookups = (ticket.lookup_s,) if looks_up else ()
        recorder.record(
            1.0,
            ticket.request.rows,
            written - received,
            started - submitted,
            run_s,
            bytes_in,
            bytes_out,
            submitted - received,
            run_s - ticket.lookup_s,
            written - finished,
            *lookups,
        )

    def failed(
        self,
        model: str,
        protocol: Protocol,
        code: str,
        duration_s: float,
        bytes_in: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """Count an answer that is an error; see `RequestObserver`."""
        key = (model if self._catalog.knows(model) else UNKNOWN_MODEL, protocol, code)
        recorder = self._failed.get(key) or self._make_failed(key)
        recorder.record(1.0, duration_s, bytes_in)

    def ranked(
        self, model: str, features: tuple[str, ...], counts: NDArray[np.int64], nan_scores: int
    ) -> None:
        """Count what happened to the values of a ranking request; see `RequestObserver`."""
        key = (model, features)
        recorder = self._ranked.get(key) or self._make_ranked(key)
        recorder.record([nan_scores, *counts.ravel("F").tolist()])

    def shed(self, model: str, reason: ShedReason) -> None:
        """Count a request refused at the door; see `RequestObserver`."""
        key = (model if self._catalog.knows(model) else UNKNOWN_MODEL, reason)
        with self._lock:
            recorder = self._shed.get(key)
            if recorder is None:
                recorder = self._series.recorder({"anabranch_requests_shed_total": key})
                self._shed[key] = recorder
        recorder.record(1.0)

    def feature_log(self, model: str, result: LogResult, requests: int) -> None:
        """Count requests that were to be logged; see `LogObserver`."""
        key = (model, result)
        with self._lock:
            recorder = self._logged.get(key)
            if recorder is None:
                recorder = self._series.recorder({"anabranch_feature_log_requests_total": key})
                self._logged[key] = recorder
        recorder.record(requests)

    def connections(self, protocol: Protocol, change: int) -> None:
        """Count a connection that came or went; see `RequestObserver`."""
        with self._lock:
            count = self._open[protocol] = self._open.get(protocol, 0) + change
            recorder = self._open_recorders.get(protocol)
            if recorder is None:
                recorder = self._series.recorder({"anabranch_connections": (protocol,)})
                self._open_recorders[protocol] = recorder
            recorder.record(count)

    def connection_cut(self, protocol: Protocol, reason: CutReason) -> None:
        """Count a connection that the server closed for a fault; see `RequestObserver`."""
        key = (protocol, reason)
        with self._lock:
            recorder = self._cut.get(key)
            if recorder is None:
                recorder = self._series.recorder({"anabranch_connections_cut_total": key})
                self._cut[key] = recorder
        recorder.record(1.0)

    def retire(self, model: str, version: int | None) -> None:
        """Forget the series of a version that no request can meet any more.

        Args:
            model: model name.
            version: version number; None forgets all of the model.
        """
        with self._lock:
            for scored in [key for key in self._scored if key[0] == model]:
                if version in (None, scored[1]):
                    del self._scored[scored]
            if version is None:
                for failed in [key for key in self._failed if key[0] == model]:
                    del self._failed[failed]
                for shed in [key for key in self._shed if key[0] == model]:
                    del self._shed[shed]
                for ranked in [key for key in self._ranked if key[0] == model]:
                    del self._ranked[ranked]
                for logged in [key for key in self._logged if key[0] == model]:
                    del self._logged[logged]
            self._series.retire(model, None if version is None else str(version))

    def _make_scored(self, key: tuple[str, int, Protocol, bool]) -> AnyRecorder:
        model, number, protocol, looks_up = key
        version = str(number)
        stages = (*_STAGES, _LOOKUP) if looks_up else _STAGES
        with self._lock:
            recorder = self._series.recorder(
                {
                    "anabranch_requests_total": (model, version, protocol, "OK"),
                    "anabranch_rows_total": (model, version),
                    "anabranch_request_duration_seconds": (model, version, protocol),
                    "anabranch_queue_duration_seconds": (model, version),
                    "anabranch_compute_duration_seconds": (model, version),
                    "anabranch_request_bytes": (protocol,),
                    "anabranch_response_bytes": (protocol,),
                },
                {"anabranch_stage_duration_seconds": [(model, stage) for stage in stages]},
            )
            self._scored[key] = recorder
        return recorder

    def _make_failed(self, key: tuple[str, Protocol, str]) -> AnyRecorder:
        model, protocol, code = key
        with self._lock:
            recorder = self._series.recorder(
                {
                    "anabranch_requests_total": (model, "", protocol, code),
                    "anabranch_request_duration_seconds": (model, "", protocol),
                    "anabranch_request_bytes": (protocol,),
                }
            )
            self._failed[key] = recorder
        return recorder

    def _make_ranked(self, key: tuple[str, tuple[str, ...]]) -> ManyRecorder:
        model, features = key
        wanted: list[tuple[str, tuple[str, ...]]] = [("anabranch_rank_nan_scores_total", (model,))]
        for count in COUNTS:
            metric = f"anabranch_feature_{count}_total"
            wanted += [(metric, (model, feature)) for feature in features]
        with self._lock:
            recorder = self._ranked[key] = self._series.many(wanted)
        return recorder


class ModelCounters:
    """Counts what happens in one model's session group; a `GroupObserver`. Safe from any thread.

    Args:
        page: where to count.
        model: model name.
        worker: index of this process among the workers.
        spans: where it is written down what takes how long.

    Attributes:
        spans: as given.
    """

    def __init__(
        self, page: CountersPage, model: str, worker: int, spans: Spans | None = None
    ) -> None:
        self.spans = spans or Spans()
        self._series = PageSeries(page)
        self._model = model
        self._worker = worker
        self._lock = threading.Lock()
        self._batches: dict[tuple[int, int], AnyRecorder] = {}
        self._lookups: dict[tuple[str, str], AnyRecorder] = {}
        self._waiting: AnyRecorder | None = None
        # Made at birth: a rate over a counter that first appears with a value misses that value.
        self._shed = {
            reason: self._series.recorder({"anabranch_requests_shed_total": (model, reason)})
            for reason in get_args(ShedReason)
        }
        self._dropped = {
            reason: self._series.recorder({"anabranch_requests_dropped_total": (model, reason)})
            for reason in get_args(DropReason)
        }
        self._restarted = {
            reason: self._series.recorder({"anabranch_executor_restarts_total": (reason,)})
            for reason in get_args(RestartReason)
        }

    def batch(self, executor: int, version: int, rows: int, requests: int, busy_s: float) -> None:
        """Count a batch; see `GroupObserver`."""
        key = (executor, version)
        recorder = self._batches.get(key) or self._make_batch(key)
        recorder.record(rows, requests, busy_s)

    def shed(self, reason: ShedReason) -> None:
        """Count a request refused at the queue."""
        self._shed[reason].record(1.0)

    def dropped(self, reason: DropReason) -> None:
        """Count a request dropped from the queue."""
        self._dropped[reason].record(1.0)

    def looked_up(self, counts: LookupCounts) -> None:
        """Count what was looked up since the last call, by feature and table."""
        with self._lock:
            for at, (keys, misses) in counts.items():
                recorder = self._lookups.get(at)
                if recorder is None:
                    recorder = self._lookups[at] = self._make_lookups(*at)
                recorder.record(keys, misses, keys, misses)

    def executor_restarted(self, reason: RestartReason) -> None:
        """Count an executor's thread that was replaced."""
        self._restarted[reason].record(1.0)

    def waiting(self, requests: int, rows: int, in_flight: int) -> None:
        """Say how much waits at this moment.

        Args:
            requests: that wait for an executor.
            rows: of those.
            in_flight: requests that wait or are computed.
        """
        with self._lock:
            if self._waiting is None:
                at = (self._model,)
                self._waiting = self._series.recorder(
                    {
                        "anabranch_queue_requests": at,
                        "anabranch_queue_rows": at,
                        "anabranch_requests_in_flight": at,
                    }
                )
            self._waiting.record(requests, rows, in_flight)

    def retire(self, version: int | None) -> None:
        """Forget the series of a version that is not computed any more; None forgets all.

        After None, nothing may be counted here.
        """
        with self._lock:
            for batch in [key for key in self._batches if version in (None, key[1])]:
                del self._batches[batch]
            if version is None:
                self._lookups.clear()
            self._series.retire(self._model, None if version is None else str(version))

    def _make_lookups(self, feature: str, table: str) -> AnyRecorder:
        """Make the recorder of a feature in a table; the lock is held."""
        return self._series.recorder(
            {
                "anabranch_feature_keys_total": (self._model, feature),
                "anabranch_feature_misses_total": (self._model, feature),
                "anabranch_store_lookups_total": (self._model, table),
                "anabranch_store_misses_total": (self._model, table),
            }
        )

    def _make_batch(self, key: tuple[int, int]) -> AnyRecorder:
        executor, version = key
        at = (self._model, str(version))
        with self._lock:
            recorder = self._series.recorder(
                {
                    "anabranch_batch_rows": at,
                    "anabranch_batch_requests": at,
                    "anabranch_executor_busy_seconds_total": (
                        self._model,
                        f"w{self._worker}e{executor}",
                    ),
                }
            )
            self._batches[key] = recorder
        return recorder
