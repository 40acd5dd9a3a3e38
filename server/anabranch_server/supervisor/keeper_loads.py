"""Versions of one model, looked at by the loader before they are switched to."""

from collections.abc import Callable

import msgspec

from anabranch_model_store.memory import Demand, must_give_way
from anabranch_server.processes.messages import LoadVersion, Progress
from anabranch_server.supervisor.keeper_failures import of_version
from anabranch_server.supervisor.keeper_reports import ReloadReports
from anabranch_server.supervisor.keeper_switches import Switches
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.watching import SeenModel
from anabranch_server.supervisor.watching_files import SeenVersion
from anabranch_wire.errors import AnabranchError, NotFound

__all__ = ["Loads"]


class Loads:
    """Has versions of one model looked at, one at a time. Belongs to its keeper's task.

    Args:
        name: of the model.
        around: what it works with.
        reports: of the model.
        switches: of the model; their shelf takes what is found good.

    Attributes:
        current: version that is being looked at.
        on_progress: told how far that is.
    """

    def __init__(
        self, name: str, around: Surroundings, reports: ReloadReports, switches: Switches
    ) -> None:
        self.current: int | None = None
        self.on_progress: Callable[[Progress], None] = lambda progress: None
        self._name = name
        self._around = around
        self._reports = reports
        self._switches = switches

    async def obtain(
        self, number: int, seen: SeenModel | None, max_bytes: int, *, is_in_memory: bool
    ) -> AnabranchError | None:
        """Have a complete version looked at; returns why it cannot be served.

        Args:
            number: of the version.
            seen: what the repository has.
            max_bytes: what the model's versions may take; 0 is no limit of its own.
            is_in_memory: whether workers have it already, so that it takes no more room.
        """
        version = None if seen is None else seen.versions.get(number)
        if seen is None or version is None:
            return NotFound(f"model {self._name!r} has no complete version {number}")
        self.current = number
        try:
            request = LoadVersion(
                number=0,
                model=self._name,
                version=number,
                model_path=str(seen.path),
                version_path=str(version.path),
                serving_yaml=seen.serving_yaml,
                idle=self._around.is_serving(),
                available_bytes=None if is_in_memory else await self._make_room(version, max_bytes),
                in_use=self._around.in_use(),
            )
            found = await self._around.loader.load(request, self.on_progress)
        except AnabranchError as error:
            self._reports.failed(number, error, version.fingerprint)
            return of_version(number, error)
        finally:
            self.current = None
        self._reports.failures.forget(number)
        self._switches.shelf.put(version, found)
        self._reports.notes(found.version)
        return None

    async def _make_room(self, version: SeenVersion, max_bytes: int) -> int | None:
        """Let unserved versions go where a new one needs their room; returns what it may take.

        Raises:
            TooLarge: it does not fit.
            AnabranchError: the unserved ones could not be let go.
        """
        around, switches = self._around, self._switches
        state = switches.state
        plans = () if state is None else state.versions
        served = () if state is None else state.served
        kept_bytes = sum(plan.weight_bytes for plan in plans if plan.version not in served)
        held_bytes = sum(plan.weight_bytes for plan in plans)
        available = around.available_bytes()
        demand = Demand(version.bytes, held_bytes, kept_bytes, around.workers)
        if must_give_way(demand, max_bytes, available) and state is not None:
            left = tuple(plan for plan in plans if plan.version in served)
            lean = msgspec.structs.replace(state, versions=left)
            error = await switches.switch(lean, switches.intent, "config")
            if error is not None:
                raise error
            available = None if available is None else available + around.workers * kept_bytes
        # The loader counts the graph once, with the tables that all workers share.
        others = (around.workers - 1) * version.bytes
        return None if available is None else max(0, available - others)
