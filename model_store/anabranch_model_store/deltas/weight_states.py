"""What deltas have brought beside rows of a store, as it was at some of them: for restarts.

A file for each version in the cache folder. Whoever begins with the version as it was published
takes the newest state, and looks only at deltas after it. Where it is not there, all are looked at.
"""

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch_model_store.cache_entries import name_of, newest_first
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import AnabranchError

__all__ = ["WeightState", "WeightStates"]

_MOST: Final = 16
"""States that are kept of a version: those of its newest deltas."""

_FILES: Final = 64
"""Versions whose states are kept, those with the newest deltas."""


class WeightState(Document, frozen=True, kw_only=True):
    """What deltas up to one have brought.

    Attributes:
        delta: the newest of those that have brought something.
        weights: file with all weights that they have changed; None where they have changed none.
        items: numbers of the deltas that the item tables are from.
    """

    delta: Annotated[int, Meta(ge=1)]
    weights: str | None
    items: tuple[int, ...] = ()


class _States(Document, frozen=True, kw_only=True):
    format: Literal[1] = 1
    identity: str
    states: tuple[WeightState, ...] = ()


class WeightStates:
    """The states of a version. Belongs to one thread.

    Args:
        folder: where they are kept; made on first use, mode 0700.
        identity: of the version.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._place = folder / f"{name_of(identity)}.json"
        self._identity = identity

    def newest(self, upto: int) -> WeightState | None:
        """Return the newest state whose weights are there; None where there is none.

        Args:
            upto: the delta that it does not pass.
        """
        found = [one for one in self._read() if one.delta <= upto]
        for state in sorted(found, key=lambda one: -one.delta):
            if state.weights is None or Path(state.weights).is_file():
                return state
        return None

    def note(self, state: WeightState) -> None:
        """Keep a state; where that cannot be, a restart takes longer."""
        others = [one for one in self._read() if one.delta != state.delta]
        kept = sorted((*others, state), key=lambda one: one.delta)[-_MOST:]
        temporary = self._place.with_name(f".{secrets.token_hex(8)}.tmp")
        with suppress(OSError):
            self._place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            document = _States(identity=self._identity, states=tuple(kept))
            temporary.write_bytes(encode_json(document, self._place.name))
            temporary.replace(self._place)
            for old in newest_first(self._place.parent, Path.is_file)[_FILES:]:
                old.unlink(missing_ok=True)

    def _read(self) -> tuple[WeightState, ...]:
        try:
            found = decode_json(self._place.read_bytes(), _States, self._place.name)
        except (AnabranchError, OSError):
            return ()
        return found.states if found.identity == self._identity else ()
