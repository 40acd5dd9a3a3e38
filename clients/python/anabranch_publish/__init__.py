"""Publisher of versions for the anabranch inference server."""

from anabranch_publish.tables import Rows
from anabranch_publish.versions import PublishedVersion, publish_version

__all__ = ["PublishedVersion", "Rows", "publish_version"]
