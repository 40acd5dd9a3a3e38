"""What deltas have brought beside rows of a store, as it was at some of them: for restarts.

A file for each version in the cache folder. Whoever begins with the version as it was published
takes the newest state, and looks only at deltas after it. Where it is not there, all are looked at.
"""

import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from anabranch_model_store.cache_entries import name_of, newest_first
from anabranch_model_store.deltas.lineages import mark_of
from anabranch_wire.delta import Delta
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import AnabranchError

__all__ = ["MadeOf", "WeightState", "WeightStates"]

_MOST: Final = 16
"""States that are kept of a version: those of its newest deltas."""

_MARKS: Final = 32
"""Deltas that a state is made of and that are compared with what is published, the newest."""

_FILES: Final = 64
"""Versions whose states are kept, those with the newest deltas."""


class MadeOf(Document, frozen=True, kw_only=True):
    """A delta as it was published when a state was made of it.

    Attributes:
        delta: its number.
        mark: 16 hexadecimal digits that tell it from others of that number.
    """

    delta: Annotated[int, Meta(ge=1)]
    mark: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]

    @classmethod
    def of(cls, delta: Delta) -> Self:
        """Return what is kept of a delta."""
        return cls(delta=delta.sequence, mark=f"{mark_of(delta):016x}")


class WeightState(Document, frozen=True, kw_only=True):
    """What deltas up to one have brought.

    Attributes:
        delta: the newest of those that have brought something.
        weights: file with all weights that they have changed; None where they have changed none.
        items: numbers of the deltas that the item tables are from.
        made_of: the newest of those that have brought something, by rising numbers.
    """

    delta: Annotated[int, Meta(ge=1)]
    weights: str | None
    items: tuple[int, ...] = ()
    made_of: Annotated[tuple[MadeOf, ...], Meta(min_length=1)]

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """Number and mark of each of `made_of`."""
        return tuple((one.delta, int(one.mark, 16)) for one in self.made_of)


class _States(Document, frozen=True, kw_only=True):
    format: Literal[2] = 2
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

    def newest(
        self, upto: int, is_meant: Callable[[WeightState], bool] = lambda state: True
    ) -> WeightState | None:
        """Return the newest state whose weights are there; None where there is none.

        Args:
            upto: the delta that it does not pass.
            is_meant: whether it is made of those deltas that are meant.
        """
        found = [one for one in self._read() if one.delta <= upto]
        for state in sorted(found, key=lambda one: -one.delta):
            if (state.weights is None or Path(state.weights).is_file()) and is_meant(state):
                return state
        return None

    def note(self, state: WeightState) -> None:
        """Keep a state; where that cannot be, a restart takes longer."""
        state = replace(state, made_of=state.made_of[-_MARKS:])
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
