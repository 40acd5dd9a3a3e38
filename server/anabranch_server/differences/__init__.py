"""Comparing snapshots: in a command, or for the admin port in a process of its own."""

from anabranch_server.differences.child import ComparisonFailed
from anabranch_server.differences.comparing import Comparer

__all__ = ["Comparer", "ComparisonFailed"]
