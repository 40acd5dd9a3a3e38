"""What is said, counted and remembered of one model: the reload line, notes, failures."""

import asyncio
import logging
from collections.abc import Collection

from anabranch_server.load_failures import FailureReason, failure_reason
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.supervisor.desired import Desired, Facts, namers
from anabranch_server.supervisor.keeper_counts import ReloadCounts, ReloadKind
from anabranch_server.supervisor.keeper_delta_faults import DeltaFaults
from anabranch_server.supervisor.keeper_failures import Failures, of_delta, of_version
from anabranch_server.supervisor.keeper_work import Work
from anabranch_wire.errors import AnabranchError, Conflict, NotFound

__all__ = ["ReloadReports"]

_log = logging.getLogger(__name__)


class ReloadReports:
    """Log lines, counters and failures of one model. Belongs to the event loop.

    Args:
        model: its name.
        counts: of all models.
        gap_grace_s: how long a missing delta is waited for before that is a failure.

    Attributes:
        failures: what could not be served.
        delta_faults: deltas that could not be applied.
    """

    def __init__(self, model: str, counts: ReloadCounts, gap_grace_s: float = 60.0) -> None:
        self._model = model
        self._counts = counts
        self.failures = Failures()
        self.delta_faults = DeltaFaults(gap_grace_s)
        self._said: tuple[object, ...] = ()

    def served(
        self,
        kind: ReloadKind,
        number: int | None,
        plan: VersionPlan | None,
        work: Work,
    ) -> None:
        """A version is served from now on, or what is served is run in another way."""
        self._counts.succeeded(self._model, kind, work.phase_ms)
        self._counts.applied(self._model, work.upserts, work.deletes)
        delta = 0 if plan is None else plan.delta
        snapshot = f"{number}+{delta}" if delta else str(number)
        text = (
            "no version answers by default" if number is None else f"version {snapshot} is served"
        )
        _log.info(
            "model %s: %s",
            self._model,
            text,
            extra={
                "event": "reload",
                "model": self._model,
                "kind": kind,
                "version": number,
                "delta": delta,
                "result": "ok",
                "phase_ms": dict(work.phase_ms),
                "rows": work.upserts + work.deletes,
                "bytes": work.bytes if plan is None or kind == "delta" else plan.weight_bytes,
            },
        )

    def published(self, kind: ReloadKind, seconds: float) -> None:
        """A version is served so long after it was published."""
        self._counts.served(self._model, kind, seconds)

    def failed(
        self,
        number: int | None,
        error: AnabranchError,
        fingerprint: str | None = None,
        *,
        kind: ReloadKind = "version",
        reason: FailureReason | None = None,
    ) -> None:
        """A version is not served, or the model not as its files say.

        Args:
            number: of the version; None for the model.
            error: what went wrong.
            fingerprint: of the version's files; with it the error is held against them.
            kind: of what was tried.
            reason: why, in one word; None is that of the error.
        """
        reason = reason or failure_reason(error)
        if number is not None and fingerprint is not None:
            now_s = asyncio.get_running_loop().time()
            self.failures.note(number, fingerprint, error, now_s)
        self.failures.show(number, error, reason)
        self._counts.failed(self._model, kind, reason)
        _log.error(
            "model %s: %s%s",
            self._model,
            "" if number is None else f"version {number} is not served: ",
            error.message,
            extra={
                "event": "reload",
                "model": self._model,
                "kind": kind,
                "version": number,
                "delta": 0,
                "result": "failed",
                "reason": reason,
            },
        )

    def delta_failed(
        self,
        number: int,
        sequence: int,
        upto: int,
        error: AnabranchError,
        reason: FailureReason,
        now_s: float,
        *,
        is_of_files: bool = False,
        passes: bool = False,
    ) -> AnabranchError | None:
        """A delta cannot be applied; what it was tried for once is said once.

        Args:
            number: of the version.
            sequence: of the delta; of a gap, the number that is missing.
            upto: the newest delta that was asked for.
            error: what went wrong.
            reason: the same in one word.
            now_s: clock of the event loop.
            is_of_files: whether it is to be tried again when the delta's files change.
            passes: whether it may pass whatever the error is.

        Returns:
            The error, with the delta that it is about; None where it is not a failure yet.
        """
        fault = self.delta_faults.note(
            number, sequence, upto, error, reason, now_s, is_of_files=is_of_files, passes=passes
        )
        if fault is not None:
            self.failures.show(number, error, reason, sequence)
            self._counts.failed(self._model, "delta", reason)
            _log.error(
                "model %s: version %d goes no further: %s",
                self._model,
                number,
                of_delta(sequence, error).message,
                extra={
                    "event": "reload",
                    "model": self._model,
                    "kind": "delta",
                    "version": number,
                    "delta": sequence,
                    "result": "failed",
                    "reason": reason,
                },
            )
        known = self.delta_faults.of(number)
        return None if known is None or known.sequence != sequence else of_delta(sequence, error)

    def unserved(self, wanted: Desired, facts: Facts) -> AnabranchError | None:
        """Report, once, versions that are named but not there, and those that are behind.

        One whose files are still being copied is waited for. Returns the first error.
        """
        missing = tuple(n for n in wanted.missing if n not in facts.present.changing)
        said, self._said = self._said, (missing, wanted.behind)
        if said == self._said:
            return None
        first: AnabranchError | None = None
        error: AnabranchError
        for number in missing:
            if self.failures.error_of(number) is None:
                named = ", ".join(namers(number, facts))
                error = NotFound(f"the repository has no such version, but {named} asks for it")
                self.failed(number, error)
                first = first or of_version(number, error)
        for number in wanted.behind:
            error = Conflict(
                "it has seen older events than the version that is served; publish one that has "
                "caught up, load it by number, or set catch_up: allow in serving.yaml"
            )
            self.failed(number, error, reason="behind")
            first = first or of_version(number, error)
        return first

    def notes(self, plan: VersionPlan, known: Collection[str] = ()) -> None:
        """A version can be served, but not as well as it could be.

        Args:
            plan: the version.
            known: notes that were said before.
        """
        for note in (one for one in plan.notes if one not in known):
            _log.warning(
                "model %s: version %d: %s",
                self._model,
                plan.version,
                note,
                extra={"event": "version_note", "model": self._model},
            )

    def gone(self) -> None:
        """The model has left the repository."""
        _log.info(
            "model %s is gone from the repository",
            self._model,
            extra={"event": "model_gone", "model": self._model},
        )
