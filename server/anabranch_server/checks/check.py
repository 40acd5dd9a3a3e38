"""What one look at the machine found."""

from typing import Literal

import msgspec

__all__ = ["Check", "Status"]

Status = Literal["ok", "warning", "failure"]


class Check(msgspec.Struct, frozen=True):
    """What one look found.

    Attributes:
        name: what was looked at.
        status: what it means for a server.
        found: what is there.
        remedy: what to do; empty when it is fine.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""
