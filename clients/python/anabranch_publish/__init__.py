"""Publisher of versions and deltas for the anabranch inference server."""

from anabranch_publish.drafts import DeltaDraft
from anabranch_publish.publisher import Publisher
from anabranch_publish.tables import Rows
from anabranch_publish.versions import PublishedVersion, publish_version

__all__ = ["DeltaDraft", "PublishedVersion", "Publisher", "Rows", "publish_version"]
