"""Looks at single things that a server needs; each returns one `Check` and never raises."""

from anabranch_server.checks.check import Check, Status

__all__ = ["Check", "Status"]
