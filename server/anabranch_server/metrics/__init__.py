"""What the server counts, and how it is shown to Prometheus."""

from anabranch_server.metrics.exposition import Exposition
from anabranch_server.metrics.names import METRICS, Metric
from anabranch_server.metrics.recording import ModelCounters, RequestCounters, create_page

__all__ = ["METRICS", "Exposition", "Metric", "ModelCounters", "RequestCounters", "create_page"]
