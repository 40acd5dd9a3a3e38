"""What the server says of itself and its models: plain values, the same over HTTP and gRPC."""

from anabranch_server.describe.configuration import ModelConfiguration, configuration_of
from anabranch_server.describe.metadata import (
    ModelMetadata,
    ServerMetadata,
    TensorMetadata,
    model_metadata,
    server_metadata,
)
from anabranch_server.describe.models import FailureView, ModelView, SplitView, VersionView
from anabranch_server.describe.repository import IndexEntry, ModelState
from anabranch_server.describe.workers import WorkerView

__all__ = [
    "FailureView",
    "IndexEntry",
    "ModelConfiguration",
    "ModelMetadata",
    "ModelState",
    "ModelView",
    "ServerMetadata",
    "SplitView",
    "TensorMetadata",
    "VersionView",
    "WorkerView",
    "configuration_of",
    "model_metadata",
    "server_metadata",
]
