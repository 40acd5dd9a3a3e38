"""The metrics of this release: names, kinds, labels, buckets and help, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from anabranch_runtime.counters import Kind

__all__ = [
    "BYTES",
    "LATENCY_S",
    "METRICS",
    "RELOAD_S",
    "REQUESTS",
    "ROWS",
    "UNKNOWN_MODEL",
    "Metric",
]

UNKNOWN_MODEL: Final = "_unknown"
"""Value of the label `model` for every name that is not a model of the catalog."""

LATENCY_S: Final = (
    *(0.0001, 0.0002, 0.0003, 0.0005, 0.00075),
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075),
    *(0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)
ROWS: Final = tuple(float(2**power) for power in range(13))
REQUESTS: Final = ROWS[:9]
BYTES: Final = tuple(float(4**power) for power in range(3, 14))
RELOAD_S: Final = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    *(10.0, 20.0, 60.0, 120.0, 300.0, 600.0),
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        kind: what its values mean.
        labels: names of its labels, in the order in which values are given.
        help: one sentence for people.
        bounds: of a histogram, the inclusive upper ends of its buckets but the last.
    """

    kind: Kind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()


_MODEL: Final = ("model",)
_VERSION: Final = ("model", "version")
_TABLE: Final = ("model", "table")
_FEATURE: Final = ("model", "feature")

METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "anabranch_requests_total": Metric(
            "counter",
            ("model", "version", "protocol", "code"),
            "Requests answered, by gRPC status name; no version where it failed before one.",
        ),
        "anabranch_rows_total": Metric("counter", _VERSION, "Rows scored."),
        "anabranch_request_duration_seconds": Metric(
            "histogram",
            ("model", "version", "protocol"),
            "From the last received byte of a request to its answer.",
            LATENCY_S,
        ),
        "anabranch_queue_duration_seconds": Metric(
            "histogram",
            _VERSION,
            "From admission of a request to the start of its batch.",
            LATENCY_S,
        ),
        "anabranch_compute_duration_seconds": Metric(
            "histogram", _VERSION, "From the start of a request's batch to its result.", LATENCY_S
        ),
        "anabranch_stage_duration_seconds": Metric(
            "histogram",
            ("model", "stage"),
            "Time of a request in each stage: decode (from its last received byte to its "
            "admission), lookup (of rows, where there are tables), run, encode (from the result "
            "to the answer handed to the transport).",
            LATENCY_S,
        ),
        "anabranch_request_bytes": Metric(
            "histogram", ("protocol",), "Bytes of request bodies as received.", BYTES
        ),
        "anabranch_response_bytes": Metric(
            "histogram", ("protocol",), "Bytes of the bodies of scored answers.", BYTES
        ),
        "anabranch_batch_rows": Metric(
            "histogram", _VERSION, "Rows of a batch, without padding.", ROWS
        ),
        "anabranch_batch_requests": Metric(
            "histogram", _VERSION, "Requests that met in a batch.", REQUESTS
        ),
        "anabranch_queue_requests": Metric("gauge", _MODEL, "Requests waiting for an executor."),
        "anabranch_queue_rows": Metric("gauge", _MODEL, "Rows waiting for an executor."),
        "anabranch_requests_in_flight": Metric(
            "gauge", _MODEL, "Requests waiting or being computed."
        ),
        "anabranch_requests_shed_total": Metric(
            "counter", ("model", "reason"), "Requests refused because there was too much to do."
        ),
        "anabranch_requests_dropped_total": Metric(
            "counter", ("model", "reason"), "Queued requests dropped before they cost compute."
        ),
        "anabranch_connections": Metric("gauge", ("protocol",), "Open connections."),
        "anabranch_connections_cut_total": Metric(
            "counter", ("protocol", "reason"), "Connections closed by the server for a fault."
        ),
        "anabranch_executor_busy_seconds_total": Metric(
            "counter", ("model", "executor"), "Time that an executor spent on batches."
        ),
        "anabranch_executor_restarts_total": Metric(
            "counter", ("reason",), "Executor threads that ended and were replaced."
        ),
        "anabranch_worker_restarts_total": Metric(
            "counter", ("reason",), "Worker processes that ended and were started again."
        ),
        "anabranch_workers": Metric("gauge", ("state",), "Worker processes."),
        "anabranch_reloads_total": Metric(
            "counter",
            ("model", "kind", "result"),
            "Changes of what a model serves, and attempts that failed.",
        ),
        "anabranch_reload_failures_total": Metric(
            "counter", ("model", "reason"), "Failed attempts to change what a model serves."
        ),
        "anabranch_reload_duration_seconds": Metric(
            "histogram",
            ("model", "kind", "phase"),
            "Time that a change of what a model serves spent in each phase.",
            RELOAD_S,
        ),
        "anabranch_repository_reachable": Metric(
            "gauge", (), "1 if the last look at a remote repository could be taken, else 0."
        ),
        "anabranch_repository_failures_total": Metric(
            "counter", (), "Looks at a remote repository that could not be taken."
        ),
        "anabranch_delta_rows_total": Metric(
            "counter", ("model", "op"), "Rows of deltas that are served: upsert or delete."
        ),
        "anabranch_publish_to_served_seconds": Metric(
            "histogram",
            ("model", "kind"),
            "From the publication of a version or delta until it was served.",
            RELOAD_S,
        ),
        "anabranch_snapshot_version": Metric(
            "gauge", _MODEL, "Version that answers requests naming none."
        ),
        "anabranch_snapshot_delta": Metric(
            "gauge", _MODEL, "Newest applied delta of that version; 0 as published."
        ),
        "anabranch_snapshot_step": Metric("gauge", _MODEL, "Training step of that version."),
        "anabranch_snapshot_event_timestamp_seconds": Metric(
            "gauge", _MODEL, "Newest event that it was trained on, seconds since 1970."
        ),
        "anabranch_snapshot_published_timestamp_seconds": Metric(
            "gauge", _MODEL, "When it was published, seconds since 1970."
        ),
        "anabranch_snapshot_applied_timestamp_seconds": Metric(
            "gauge", _MODEL, "Since when it is served, seconds since 1970."
        ),
        "anabranch_model_ready": Metric(
            "gauge", _MODEL, "1 if the model can answer requests naming no version, else 0."
        ),
        "anabranch_optimized_lookups": Metric(
            "gauge",
            ("model", "version", "where"),
            "Lookups of a version's graph: cut out and run by the store, or left in the graph.",
        ),
        "anabranch_store_rows": Metric(
            "gauge", _TABLE, "Rows of a table, of the version that answers by default."
        ),
        "anabranch_store_lookups_total": Metric("counter", _TABLE, "Keys looked up in a table."),
        "anabranch_store_misses_total": Metric(
            "counter", _TABLE, "Keys looked up in a table that it did not hold."
        ),
        "anabranch_feature_keys_total": Metric(
            "counter", _FEATURE, "Keys looked up for a feature."
        ),
        "anabranch_feature_misses_total": Metric(
            "counter", _FEATURE, "Keys looked up for a feature that a table did not hold."
        ),
        "anabranch_feature_values_total": Metric(
            "counter", _FEATURE, "Raw values of a feature of ranking requests, defaults included."
        ),
        "anabranch_feature_defaulted_total": Metric(
            "counter", _FEATURE, "Rows of a feature that its default stood in for."
        ),
        "anabranch_feature_out_of_vocabulary_total": Metric(
            "counter", _FEATURE, "Values of a feature that took the id of what is unknown."
        ),
        "anabranch_feature_truncated_total": Metric(
            "counter", _FEATURE, "Values of a feature that were cut off: more than max_length."
        ),
        "anabranch_feature_out_of_range_total": Metric(
            "counter", _FEATURE, "Numbers of a float32 feature that are not finite."
        ),
        "anabranch_rank_nan_scores_total": Metric(
            "counter", _MODEL, "Candidates of ranking requests whose score was no number."
        ),
        "anabranch_feature_log_requests_total": Metric(
            "counter",
            ("model", "result"),
            "Sampled ranking requests: written, dropped where the queue was full, or failed.",
        ),
        "anabranch_store_bytes": Metric(
            "gauge",
            ("model", "part"),
            "Memory of the tables of a model: base (of the segment files), index, arena, undo.",
        ),
        "anabranch_store_arena_used_ratio": Metric(
            "gauge",
            _MODEL,
            "Share of the room for changed rows that is taken, of the fullest table.",
        ),
        "anabranch_store_huge_page_ratio": Metric(
            "gauge", _MODEL, "Share of the memory of index and changed rows in huge pages."
        ),
        "anabranch_store_retired_rows": Metric(
            "gauge", _MODEL, "Superseded rows that wait until no request reads them."
        ),
        "anabranch_store_leases": Metric("gauge", _MODEL, "Workers that may read the tables."),
        "anabranch_store_oldest_lease_seconds": Metric(
            "gauge", _MODEL, "How long a worker has read rows that were no longer current."
        ),
        "anabranch_build_info": Metric(
            "gauge", ("version", "backend", "isa"), "Always 1; what this server is made of."
        ),
        "process_cpu_seconds_total": Metric("counter", ("worker",), "User and system CPU time."),
        "process_resident_memory_bytes": Metric("gauge", ("worker",), "Resident memory."),
        "process_virtual_memory_bytes": Metric("gauge", ("worker",), "Virtual memory."),
        "process_start_time_seconds": Metric(
            "gauge", ("worker",), "Start of the process, seconds since 1970."
        ),
        "process_open_fds": Metric("gauge", ("worker",), "Open file descriptors."),
        "process_max_fds": Metric("gauge", ("worker",), "Limit on open file descriptors."),
        "process_threads": Metric("gauge", ("worker",), "Threads."),
    }
)
"""Name -> metric, in the order in which they are shown."""
