"""Which versions of which models this process serves, and how a request's selector picks one.

The catalog is read by every request and written rarely: writers replace one immutable mapping,
readers never lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import NotFound, Unavailable
from anabranch_wire.names import is_label, is_version

__all__ = ["Catalog", "ServingState"]

_SHOWN: Final = 20
"""How many names or versions a message lists."""


@dataclass(frozen=True, slots=True, eq=False)
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
        if not self.versions:
            return "no version is loaded"
        label, loaded = self.default_label, f"loaded: {_numbers(self.versions)}"
        if label is None:
            return f"no version answers by default; {loaded}"
        if label not in self.labels:
            return f"default label {label!r} names no version; {loaded}"
        version = self.labels[label]
        return f"default label {label!r} names version {version}, which is not loaded; {loaded}"


class Catalog:
    """Model name -> serving state. Any thread may read; one owner calls `publish`."""

    def __init__(self) -> None:
        self._states: Mapping[str, ServingState] = MappingProxyType({})

    @property
    def states(self) -> Mapping[str, ServingState]:
        """The current mapping, an immutable value."""
        return self._states

    def publish(self, model: str, state: ServingState | None) -> None:
        """Make `state` the one that new requests see; None forgets the model."""
        states = dict(self._states)
        if state is None:
            states.pop(model, None)
        else:
            states[model] = state
        self._states = MappingProxyType(states)

    def state(self, model: str) -> ServingState:
        """Return what a model serves now.

        Args:
            model: model name as sent.

        Raises:
            NotFound: no such model; names those that there are.
        """
        states = self._states
        state = states.get(model)
        if state is None:
            raise NotFound(f"model {model[:140]!r} is not known; known: {_listed(sorted(states))}")
        return state

    def resolve(self, model: str, selector: str = "") -> ServedVersion:
        """Pick the version that answers a request.

        Args:
            model: model name as sent.
            selector: empty for the default, digits for a version, else a label.

        Raises:
            NotFound: no such model, version or label.
            Unavailable: the model or label is known, but nothing of it is loaded.
        """
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
        states = self._states
        if not states:
            return allow_empty
        return all(state.default is not None for state in states.values() if state.required)


def _numbers(versions: Mapping[int, ServedVersion]) -> str:
    return _listed([str(number) for number in sorted(versions)])


def _listed(words: Sequence[str]) -> str:
    """The first of `words`, and how many more there are."""
    shown = ", ".join(words[:_SHOWN])
    return f"{shown} and {len(words) - _SHOWN} more" if len(words) > _SHOWN else shown or "none"
