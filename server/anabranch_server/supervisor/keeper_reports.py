"""What is said and counted about one model: the reload line, notes, failures."""

import logging
from collections.abc import Mapping

from anabranch_server.processes.plans import VersionPlan
from anabranch_server.supervisor.keeper_counts import ReloadCounts, ReloadKind
from anabranch_wire.errors import AnabranchError

__all__ = ["ReloadReports"]

_log = logging.getLogger(__name__)


class ReloadReports:
    """Log lines and counters of one model. Belongs to the event loop.

    Args:
        model: its name.
        counts: of all models.
    """

    def __init__(self, model: str, counts: ReloadCounts) -> None:
        self._model = model
        self._counts = counts

    def served(
        self,
        kind: ReloadKind,
        number: int | None,
        plan: VersionPlan | None,
        phase_ms: Mapping[str, float],
    ) -> None:
        """A version is served from now on, or what is served is run in another way."""
        self._counts.succeeded(self._model, kind, phase_ms)
        text = "no version answers by default" if number is None else f"version {number} is served"
        _log.info(
            "model %s: %s",
            self._model,
            text,
            extra={
                "event": "reload",
                "model": self._model,
                "kind": kind,
                "version": number,
                "delta": 0 if plan is None else plan.delta,
                "result": "ok",
                "phase_ms": dict(phase_ms),
                "bytes": 0 if plan is None else plan.weight_bytes,
            },
        )

    def published(self, kind: ReloadKind, seconds: float) -> None:
        """A version is served so long after it was published."""
        self._counts.served(self._model, kind, seconds)

    def failed(
        self, kind: ReloadKind, number: int | None, error: AnabranchError, reason: str
    ) -> None:
        """A version is not served, or the model not as its files say."""
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

    def notes(self, plan: VersionPlan) -> None:
        """A version can be served, but not as well as it could be."""
        for note in plan.notes:
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
