"""How the supervisor learns of what is new in a repository before it looks at the folder."""

from anabranch_server.sources.opening import new_source
from anabranch_server.sources.remote_source import SourceCounts
from anabranch_server.sources.source import Source

__all__ = ["Source", "SourceCounts", "new_source"]
