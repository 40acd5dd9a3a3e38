"""What the server says of itself and its models: plain values, the same over HTTP and gRPC."""

from anabranch_server.describe.configuration import ModelConfiguration, configuration_of
from anabranch_server.describe.metadata import (
    ModelMetadata,
    ServerMetadata,
    TensorMetadata,
    model_metadata,
    server_metadata,
)
from anabranch_server.describe.repository import IndexEntry, repository_index

__all__ = [
    "IndexEntry",
    "ModelConfiguration",
    "ModelMetadata",
    "ServerMetadata",
    "TensorMetadata",
    "configuration_of",
    "model_metadata",
    "repository_index",
    "server_metadata",
]
