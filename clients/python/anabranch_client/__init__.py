"""Client of the anabranch inference server."""

from anabranch_client.client import Client, ModelMetadata
from anabranch_client.http_errors import error_from_http
from anabranch_client.infer_bodies import Scores

__all__ = ["Client", "ModelMetadata", "Scores", "error_from_http"]
