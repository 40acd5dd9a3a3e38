"""Rows that did not fit into a fresh generation either: such a one is not made over and over.

Whether they fit there depends on the files of a version and its runs alone, which stay as they are.
"""

from collections.abc import Sequence
from typing import Final

from anabranch_server.processes.plans import RunPlan, VersionPlan
from anabranch_server.supervisor.alterations import NoRoom

__all__ = ["Refusals"]

_MOST: Final = 64
"""What is known of a model; the oldest is forgotten, and found once more where it is asked for."""

_Rows = tuple[int, str, Sequence[RunPlan]]
"""Version number, identity of its files, and what changes in their rows."""


class Refusals:
    """What did not fit, of one model. Belongs to the event loop."""

    def __init__(self) -> None:
        self._messages: dict[_Rows, str] = {}

    def note(self, version: VersionPlan, error: NoRoom) -> None:
        """Remember that the rows of a version do not fit."""
        self._messages[_rows(version)] = error.message
        if len(self._messages) > _MOST:
            del self._messages[next(iter(self._messages))]

    def of(self, version: VersionPlan) -> NoRoom | None:
        """Return what was said when the rows of a version did not fit; None where they may."""
        message = self._messages.get(_rows(version))
        return None if message is None else NoRoom(message, version.version)


def _rows(version: VersionPlan) -> _Rows:
    return version.version, version.identity, tuple(version.runs)
