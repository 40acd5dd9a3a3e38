"""Where the process stands between start and exit; one owner moves it on, everyone reads it."""

from enum import Enum
from typing import Final, Protocol

from anabranch_runtime.catalog import Catalog
from anabranch_wire.errors import Unavailable

__all__ = ["Lifecycle", "Phase", "Readiness"]

_SHOWN: Final = 20
"""How many models the reason for not being ready lists."""


class Phase(Enum):
    """Phases in their only order."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Readiness(Protocol):
    """As much as a probe asks."""

    def check_ready(self) -> None:
        """Return when the server is ready.

        Raises:
            Unavailable: it is not; says why.
        """
        ...


class Lifecycle:
    """Live and ready, as probes see them.

    `advance` belongs to the serving process's main thread; the rest may be read from any thread.
    """

    def __init__(self, catalog: Catalog, *, allow_empty: bool = False) -> None:
        self._catalog = catalog
        self._allow_empty = allow_empty
        self._phase = Phase.STARTING
        self._stays_ready = False

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self._phase

    def advance(self, phase: Phase) -> None:
        """Enter `phase`, unless it or a later one was entered before."""
        phases = list(Phase)
        if phases.index(phase) > phases.index(self._phase):
            self._phase = phase

    def stay_ready(self) -> None:
        """Let no model turn ready off any more: the server was ready once."""
        self._stays_ready = True

    @property
    def is_draining(self) -> bool:
        """Whether the process answers what it has and expects no new callers."""
        return self._phase is Phase.DRAINING

    def check_ready(self) -> None:
        """Return when the process is ready.

        Raises:
            Unavailable: it is starting, draining, or a required model cannot answer; says which
                and why.
        """
        if self._phase is not Phase.SERVING:
            raise Unavailable(f"the server is {self._phase.value}")
        if self._stays_ready:
            return
        if not self._catalog.is_ready(allow_empty=self._allow_empty):
            missing = [
                f"{name} ({state.absence()})"
                for name, state in sorted(self._catalog.states.items())
                if state.required and state.default is None
            ]
            if not missing:
                raise Unavailable("the repository has no model")
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            named = ", ".join(missing[:_SHOWN])
            raise Unavailable(f"required models that cannot answer: {named}{more}")
