"""The repository index of the Open Inference Protocol."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["IndexEntry", "ModelState"]

ModelState = Literal["UNKNOWN", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"]
"""States of a model or version, in Triton's words."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One version; or a model of which none is known.

    Attributes:
        name: model name.
        version: version number as text; empty when none is known.
        state: what it can do now.
        reason: why it is not ready; empty if it is.
    """

    name: str
    version: str
    state: ModelState
    reason: str
