"""What the server counts, and how it is shown to Prometheus."""

from anabranch_server.metrics.exposition import Value, exposition
from anabranch_server.metrics.names import METRICS, Metric
from anabranch_server.metrics.process import process_figures
from anabranch_server.metrics.recording import ModelCounters, RequestCounters, create_page

__all__ = [
    "METRICS",
    "Metric",
    "ModelCounters",
    "RequestCounters",
    "Value",
    "create_page",
    "exposition",
    "process_figures",
]
