"""Deltas of one model's versions, applied by the loader; what is in the way is remembered."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from anabranch_server.load_failures import failure_reason, known_reason
from anabranch_server.processes.failures import error_of
from anabranch_server.processes.loader_messages import Applied, ApplyDeltas, Progress
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.supervisor.delta_choice import DeltaFacts
from anabranch_server.supervisor.keeper_delta_faults import DeltaFaults
from anabranch_server.supervisor.keeper_reports import ReloadReports
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.watching import SeenModel
from anabranch_server.supervisor.watching_deltas import DELTAS
from anabranch_server.supervisor.watching_files import SeenVersion
from anabranch_server.supervisor.watching_marks import mark
from anabranch_wire.errors import AnabranchError, Internal

__all__ = ["DeltaSteps"]

_MOST_FILES = 1000


class DeltaSteps:
    """Has deltas of one model applied. Belongs to its keeper's task.

    Args:
        name: of the model.
        around: what it works with.
        reports: of the model; its `delta_faults` say what is in the way.
        recorded: version -> delta that it was served at when that was written down last.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        reports: ReloadReports,
        recorded: Mapping[int, int],
    ) -> None:
        self._name = name
        self._around = around
        self._reports = reports
        self._faults: DeltaFaults = reports.delta_faults
        self._accepted = dict(recorded)

    def facts(self, seen: SeenModel | None, versions: Collection[int]) -> dict[int, DeltaFacts]:
        """Return what the choice of each version's delta depends on, where it has deltas."""
        now_s = asyncio.get_running_loop().time()
        facts = {}
        for number in versions:
            version = None if seen is None else seen.versions.get(number)
            if version is not None and version.deltas.newest:
                self._faults.filled(number, version.deltas)
                stops = self._faults.stops(number, now_s)
                facts[number] = DeltaFacts(version.deltas, stops, self._accepted.get(number, 0))
        return facts

    def accept(self, seen: SeenModel | None) -> None:
        """Have all deltas applied that are there now, also where they wait to be asked for."""
        if seen is not None:
            self._accepted = {
                number: max(self._accepted.get(number, 0), version.deltas.newest)
                for number, version in seen.versions.items()
            }

    async def apply(
        self,
        plan: VersionPlan,
        upto: int,
        seen: SeenModel,
        version: SeenVersion,
        on_progress: Callable[[Progress], None],
    ) -> tuple[Applied | None, AnabranchError | None]:
        """Have deltas applied; returns what came of it, and what was in the way.

        Args:
            plan: the version as it is.
            upto: the newest delta to apply.
            seen: the model as it lies in the repository.
            version: likewise.
            on_progress: told how far it is.

        Returns:
            None where nothing could be applied. An error only where it was reported; a gap is
            waited for in silence first.
        """
        request = ApplyDeltas(
            number=0,
            model=self._name,
            model_path=str(seen.path),
            version_path=str(version.path),
            serving_yaml=seen.serving_yaml,
            plan=plan,
            upto=upto,
            priority="idle" if self._around.is_serving() else "normal",
            available_bytes=self._around.available_bytes(),
            in_use=self._around.in_use(),
        )
        try:
            applied = await self._around.loader.apply(request, on_progress)
        except AnabranchError as error:
            return None, self._note(version, plan.delta + 1, upto, error, None)
        at = applied.version.delta
        said: AnabranchError | None = None
        if applied.fault is not None:
            fault = applied.fault
            found = error_of(fault.kind, fault.error)
            sequence = max(fault.sequence, at + 1)
            said = self._note(version, sequence, upto, found, fault.reason)
        elif at < upto:
            found = Internal(f"deltas up to {upto} were asked for, and {at} was reached; found why")
            said = self._note(version, at + 1, upto, found, None)
        return (applied if at > plan.delta else None), said

    async def look_at_files(self, seen: SeenModel | None) -> None:
        """Have what was refused for good tried again where its files have changed since."""
        now_s = asyncio.get_running_loop().time()
        for number, fault in list(self._faults.lasting(now_s)):
            version = None if seen is None else seen.versions.get(number)
            if version is None:
                continue
            now = await asyncio.to_thread(_fingerprint, version.path, fault.sequence)
            self._faults.looked_at(number, fault.sequence, now)

    def _note(
        self,
        version: SeenVersion,
        sequence: int,
        upto: int,
        error: AnabranchError,
        word: str | None,
    ) -> AnabranchError | None:
        """Remember why deltas are not applied; returns the error where it was reported before."""
        reason = failure_reason(error) if word is None else known_reason(word, error)
        now_s = asyncio.get_running_loop().time()
        return self._reports.delta_failed(
            version.number, sequence, upto, error, reason, now_s, is_of_files=reason != "gap"
        )


def _fingerprint(version: Path, sequence: int) -> str:
    """Return what changes when a file of a delta does; any thread."""
    folder = version / DELTAS / f"{sequence:08}"
    marks = []
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(where, name)
            found = mark(path)
            marks.append(f"{path} {'' if found is None else found.fingerprint}")
            if len(marks) >= _MOST_FILES:
                return "\n".join(marks)
    return "\n".join(sorted(marks))
