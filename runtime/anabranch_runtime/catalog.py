"""Which versions of which models this process serves, and how a request's selector picks one.

What a model serves is prepared under an epoch, and seen by requests from the moment the model's
shared word names that epoch: one store switches every process. The catalog is read by every request
and written rarely: writers replace one immutable mapping, readers never lock.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import NotFound, Unavailable
from anabranch_wire.names import is_label, is_version

__all__ = ["Catalog", "Epochs", "ServingState", "absence"]

_SHOWN: Final = 20
"""How many names or versions a message lists."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ServingState:
    """What one model serves right now.

    Attributes:
        versions: version number -> served version; may be empty when nothing could be loaded.
        labels: label -> version number, loaded or not.
        default: version that answers requests naming none; None when there is none.
        default_label: label that was to name that version; None where it is the newest loaded one.
        required: whether readiness needs this model.
    """

    versions: Mapping[int, ServedVersion]
    labels: Mapping[str, int] = field(default_factory=dict)
    default: int | None = None
    default_label: str | None = None
    required: bool = True

    def absence(self) -> str:
        """Say why no version answers by default."""
        return absence(self.versions, self.labels, self.default_label)


def absence(loaded: Collection[int], labels: Mapping[str, int], default_label: str | None) -> str:
    """Say why no version of a model answers by default.

    Args:
        loaded: numbers of the versions that requests may name.
        labels: label -> version number, loaded or not.
        default_label: label that was to name it; None where it is the newest loaded one.
    """
    if not loaded:
        return "no version is loaded"
    listed = f"loaded: {_numbers(loaded)}"
    if default_label is None:
        return f"no version answers by default; {listed}"
    if default_label not in labels:
        return f"default label {default_label!r} names no version; {listed}"
    version = labels[default_label]
    return f"default label {default_label!r} names version {version}, which is not loaded; {listed}"


class Epochs(Protocol):
    """The shared words that say which epoch of each model is current."""

    def load(self, index: int, /) -> int:
        """Return the epoch in word `index`, 0 while there is none; with acquire order."""
        ...


class _Prepared(NamedTuple):
    """What is prepared of one model; an immutable value.

    Attributes:
        slot: index of its shared word.
        states: epoch -> what it serves; None where the model is gone.
    """

    slot: int
    states: Mapping[int, ServingState | None]


class Catalog:
    """Model name -> what it serves now. Any thread may call anything.

    A reader takes the prepared states of a model first and its epoch second. Its states are then
    never newer than its epoch, and a sweep cannot have dropped what the epoch names; where they are
    too old to have it, a newer value is there, and the reader looks again.

    Args:
        epochs: says which epoch is current; it never goes back.
        is_complete: whether what it does not know does not exist. Else such requests are told to
            come again, until `complete`.
    """

    def __init__(self, epochs: Epochs, *, is_complete: bool = True) -> None:
        self._load = epochs.load
        self._is_complete = is_complete
        self._missed: frozenset[str] = frozenset()
        self._models: Mapping[str, _Prepared] = MappingProxyType({})
        self._writing = threading.Lock()

    def epoch(self, slot: int) -> int:
        """Return the epoch in a shared word; 0 while there is none."""
        return self._load(slot)

    # --- what is prepared -----------------------------------------------------------------------

    def hold(self, model: str, slot: int, epoch: int, state: ServingState | None) -> None:
        """Keep `state` ready: requests see it once the shared word says `epoch`.

        Args:
            model: model name.
            slot: index of its shared word; the same as long as anything of the model is held.
            epoch: above 0.
            state: what it will serve; None when the model is gone.

        Raises:
            ValueError: the model has another slot.
        """
        with self._writing:
            held = self._models.get(model)
            if held is not None and held.slot != slot:
                raise ValueError(f"model {model!r} has slot {held.slot}, not {slot}")
            states = {} if held is None else held.states
            self._replace(model, _Prepared(slot, {**states, epoch: state}))
            self._missed -= {model}

    def forget(self, model: str, epoch: int) -> None:
        """Drop what is held under `epoch`, which never became current."""
        with self._writing:
            held = self._models.get(model)
            if held is not None:
                states = {one: state for one, state in held.states.items() if one != epoch}
                self._replace(model, _Prepared(held.slot, states))

    def sweep(self, model: str) -> int:
        """Drop what is older than the current state, and return the current epoch.

        Requests that resolved it earlier keep the version they have. 0: nothing is current.
        """
        with self._writing:
            held = self._models.get(model)
            if held is None:
                return 0
            epoch = self._load(held.slot)
            states = {one: state for one, state in held.states.items() if one >= epoch}
            if states == {epoch: None}:
                states = {}  # gone, and nothing of it will come back
            if len(states) < len(held.states):
                self._replace(model, _Prepared(held.slot, states))
            return epoch

    def _replace(self, model: str, held: _Prepared) -> None:
        """Let readers see `held`; the lock for writing is taken."""
        models = dict(self._models)
        if held.states:
            models[model] = held
        else:
            models.pop(model, None)
        self._models = MappingProxyType(models)

    def miss(self, model: str) -> None:
        """What is current of a model could not be prepared: until it is, there is such a model."""
        with self._writing:
            self._missed |= {model}

    def complete(self) -> None:
        """Everything that there is was made known: what is not known does not exist."""
        self._is_complete = True

    # --- what is current ------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[str, ServingState]:
        """What every model serves now, as a value of its own."""
        states = {model: self._current(model) for model in self._models}
        return {model: state for model, state in states.items() if state is not None}

    def knows(self, model: str) -> bool:
        """Whether there is such a model."""
        return self._current(model) is not None

    def state(self, model: str) -> ServingState:
        """Return what a model serves now.

        Args:
            model: model name as sent.

        Raises:
            NotFound: no such model; names those that there are.
            Unavailable: the catalog is not complete yet, or what is current could not be prepared.
        """
        state = self._current(model)
        if state is None and not self._is_complete:
            raise Unavailable(f"model {model[:140]!r} is not loaded yet: the server is starting")
        if state is None and model in self._missed:
            raise Unavailable(f"model {model!r} could not be loaded here; it is tried again")
        if state is None:
            known = _listed(sorted(self.states))
            raise NotFound(f"model {model[:140]!r} is not known; known: {known}")
        return state

    def _current(self, model: str) -> ServingState | None:
        """What a model serves now; None where there is no such model."""
        held = self._models.get(model)
        while held is not None:
            epoch = self._load(held.slot)
            states = held.states
            if epoch in states:
                return states[epoch]
            # Prepared after the look at the models, or never: not current before its word is set.
            seen, held = held, self._models.get(model)
            if held is seen:
                return None
        return None

    def resolve(self, model: str, selector: str = "") -> ServedVersion:
        """Pick the version that answers a request.

        Args:
            model: model name as sent.
            selector: empty for the default, digits for a version, else a label.

        Raises:
            NotFound: no such model, version or label.
            Unavailable: the model or label is known, but nothing of it is loaded; or as `state`.
        """
        held = self._models.get(model)
        state = None
        if held is not None:  # every request comes this way; `state` is for the rest
            slot, states = held
            state = states.get(self._load(slot))
        if state is None:
            state = self.state(model)
        if not selector:
            if state.default is None:
                raise Unavailable(f"model {model!r}: {state.absence()}")
            return state.versions[state.default]
        if is_version(selector):
            served = state.versions.get(int(selector))
            if served is None:
                raise NotFound(
                    f"model {model!r} has no loaded version {selector}; "
                    f"loaded: {_numbers(state.versions)}"
                )
            return served
        if is_label(selector) and selector in state.labels:
            version = state.labels[selector]
            served = state.versions.get(version)
            if served is None:
                raise Unavailable(
                    f"model {model!r}, label {selector!r}: version {version} is not loaded"
                )
            return served
        raise NotFound(
            f"model {model!r} has no version or label {selector[:80]!r}; "
            f"loaded: {_numbers(state.versions)}"
        )

    def is_ready(self, *, allow_empty: bool = False) -> bool:
        """Whether every required model has a version, and there is a model at all."""
        states = self.states
        if not states:
            return allow_empty
        return all(state.default is not None for state in states.values() if state.required)


def _numbers(versions: Iterable[int]) -> str:
    return _listed([str(number) for number in sorted(versions)])


def _listed(words: Sequence[str]) -> str:
    """The first of `words`, and how many more there are."""
    shown = ", ".join(words[:_SHOWN])
    return f"{shown} and {len(words) - _SHOWN} more" if len(words) > _SHOWN else shown or "none"
