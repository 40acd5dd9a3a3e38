"""The repository index of the Open Inference Protocol."""

from dataclasses import dataclass
from typing import Literal

from anabranch_runtime.catalog import Catalog

__all__ = ["IndexEntry", "ModelState", "repository_index"]

ModelState = Literal["UNKNOWN", "LOADING", "READY", "UNLOADING", "UNAVAILABLE"]
"""States of a model or version, in Triton's words."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One version; or a model of which none is loaded.

    Attributes:
        name: model name.
        version: version number as text; empty when none is loaded.
        state: what it can do now.
        reason: why it is not ready; empty if it is.
    """

    name: str
    version: str
    state: ModelState
    reason: str


def repository_index(catalog: Catalog, *, only_ready: bool = False) -> list[IndexEntry]:
    """Return every version by model name, then number.

    Args:
        catalog: what is served.
        only_ready: leave out models without a loaded version.
    """
    entries: list[IndexEntry] = []
    for name, state in sorted(catalog.states.items()):
        entries.extend(
            IndexEntry(name, str(number), "READY", "") for number in sorted(state.versions)
        )
        if not state.versions and not only_ready:
            entries.append(IndexEntry(name, "", "UNAVAILABLE", "no version is loaded"))
    return entries
