"""Where the process stands between start and exit; one owner moves it on, everyone reads it."""

from enum import Enum

from anabranch_runtime.catalog import Catalog
from anabranch_wire.errors import Unavailable

__all__ = ["Lifecycle", "Phase"]


class Phase(Enum):
    """Phases in their only order."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Lifecycle:
    """Live and ready, as probes see them.

    `advance` belongs to the serving process's main thread; the rest may be read from any thread.
    """

    def __init__(self, catalog: Catalog, *, allow_empty: bool = False) -> None:
        self._catalog = catalog
        self._allow_empty = allow_empty
        self._phase = Phase.STARTING

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self._phase

    def advance(self, phase: Phase) -> None:
        """Enter a later phase."""
        self._phase = phase

    @property
    def is_draining(self) -> bool:
        """Whether the process answers what it has and expects no new callers."""
        return self._phase is Phase.DRAINING

    def check_ready(self) -> None:
        """Return when the process is ready.

        Raises:
            Unavailable: it is starting, draining, or a required model has no version; says which.
        """
        if self._phase is not Phase.SERVING:
            raise Unavailable(f"the server is {self._phase.value}")
        if not self._catalog.is_ready(allow_empty=self._allow_empty):
            missing = [
                name
                for name, state in self._catalog.states.items()
                if state.required and state.default is None
            ]
            named = ", ".join(sorted(missing)[:20])
            raise Unavailable(
                f"required models without a loaded version: {named}"
                if missing
                else "the repository has no model"
            )
