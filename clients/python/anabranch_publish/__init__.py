"""Publisher of versions and deltas for the anabranch inference server.

Errors are those of `anabranch_wire.errors`; the ones that publishing raises are here too.
"""

from anabranch_publish.drafts import DeltaDraft
from anabranch_publish.publisher import Publisher
from anabranch_publish.tables import Rows
from anabranch_publish.versions import PublishedVersion, publish_version
from anabranch_wire.errors import (
    AnabranchError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    Unsupported,
)

__all__ = [
    "AnabranchError",
    "Conflict",
    "Corrupt",
    "DeltaDraft",
    "InvalidInput",
    "NotFound",
    "PublishedVersion",
    "Publisher",
    "Rows",
    "Unsupported",
    "publish_version",
]
