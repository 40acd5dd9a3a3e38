"""Deltas of one model that could not be applied, or are missing, and when they are tried again.

What may pass is tried again by itself, later each time. The rest is tried when its files change,
when a later delta leads past it, or when somebody asks. A gap is waited for in silence first.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from anabranch_server.load_failures import FailureReason
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.seen_deltas import NO_STOPS, SeenDeltas
from anabranch_wire.errors import (
    AnabranchError,
    DeadlineExceeded,
    Internal,
    TooLarge,
    Unavailable,
    Unproven,
)

__all__ = ["DeltaFault", "DeltaFaults"]

_FIRST_RETRY_S: Final = 10.0
_LAST_RETRY_S: Final = 300.0
_MAY_PASS: Final = (Unavailable, Unproven, TooLarge, DeadlineExceeded, Internal)
_NEVER: Final = float("inf")
_RECHECK_S: Final = 5.0
_MOST: Final = 64
"""Faults that are known of a version: more than there are cumulative deltas that a look knows."""


@dataclass(frozen=True, slots=True)
class DeltaFault:
    """Why a version goes no further.

    Attributes:
        sequence: the delta that is in the way; of a gap, the one that is missing.
        upto: the newest one that was asked for.
        error: what is wrong.
        reason: the same in one word.
        fingerprint: of its files, taken before they were read last, so that no change is missed;
            empty where none was taken then; None where it is not about its files.
        times: how often in a row.
        since_s: when it was found first; all times are the event loop's.
        retry_at_s: when it is tried again by itself.
        is_said: whether it was reported.
    """

    sequence: int
    upto: int
    error: AnabranchError
    reason: FailureReason
    fingerprint: str | None
    times: int
    since_s: float
    retry_at_s: float
    is_said: bool

    @property
    def is_gap(self) -> bool:
        """Whether it is a delta that is missing."""
        return self.reason == "gap"

    @property
    def is_full(self) -> bool:
        """Whether its tables may not have as many rows."""
        return isinstance(self.error, NoRoom)


class DeltaFaults:
    """What is in the way of the versions of one model. Belongs to its keeper's task.

    Args:
        gap_grace_s: how long a missing delta is waited for before that is a failure.
    """

    def __init__(self, gap_grace_s: float) -> None:
        self._gap_grace_s = gap_grace_s
        self._faults: dict[int, dict[int, DeltaFault]] = {}
        self._recheck_at_s = 0.0

    def note(
        self,
        version: int,
        sequence: int,
        upto: int,
        error: AnabranchError,
        reason: FailureReason,
        now_s: float,
        *,
        is_of_files: bool = False,
        passes: bool = False,
    ) -> DeltaFault | None:
        """Remember a fault; returns it where it is to be reported now.

        Args:
            version: number of the version.
            sequence: the delta that is in the way.
            upto: the newest one that was asked for.
            error: what is wrong.
            reason: the same in one word.
            now_s: clock of the event loop.
            is_of_files: whether it is to be tried again when the delta's files change.
            passes: whether it may pass whatever the error is.
        """
        faults = self._faults.setdefault(version, {})
        known = faults.get(sequence)
        is_same = known is not None and (known.reason, known.error.message) == (
            reason,
            error.message,
        )
        times = known.times + 1 if known is not None and is_same else 1
        since_s = known.since_s if known is not None and is_same else now_s
        is_gap = reason == "gap"
        is_due = not is_gap or now_s - since_s >= self._gap_grace_s
        before = "" if known is None or known.fingerprint is None else known.fingerprint
        was_said = known is not None and is_same and known.is_said
        fault = DeltaFault(
            sequence,
            upto,
            error,
            reason,
            before if is_of_files else None,
            times,
            since_s,
            self._retry_at_s(error, times, since_s, now_s, is_gap=is_gap, passes=passes),
            is_said=is_due,
        )
        faults[sequence] = fault
        if len(faults) > _MOST:  # the first one is what people are told of
            del faults[sorted(faults)[1]]
        return fault if is_due and not was_said else None

    def stops(self, version: int, now_s: float) -> Mapping[int, int]:
        """Return what is in the way of a version now; see `DeltaFacts.stops`."""
        faults = self._faults.get(version)
        if not faults:
            return NO_STOPS
        return {one.sequence: one.upto for one in faults.values() if one.retry_at_s > now_s}

    def of(self, version: int) -> DeltaFault | None:
        """Return the first fault of a version that was reported."""
        said = [one for one in self._faults.get(version, {}).values() if one.is_said]
        return min(said, key=lambda one: one.sequence, default=None)

    def newest(self, version: int) -> DeltaFault | None:
        """Return the last fault of a version that was reported: what is to lead past the others."""
        said = [one for one in self._faults.get(version, {}).values() if one.is_said]
        return max(said, key=lambda one: one.sequence, default=None)

    def passed(self, version: int, applied: int) -> None:
        """A version is served at a delta: what was in the way before that is not any more.

        Where several together did not fit, some of those that are left may: they are tried at once.
        """
        faults = self._faults.get(version, {})
        for sequence in [one for one in faults if one <= applied]:
            del faults[sequence]
        following = faults.get(applied + 1)
        if following is not None and following.is_full and following.upto > following.sequence:
            for sequence, fault in faults.items():
                if fault.is_full:
                    faults[sequence] = replace(fault, retry_at_s=0.0)
        if not faults:
            self._faults.pop(version, None)

    def filled(self, version: int, seen: SeenDeltas) -> None:
        """Forget gaps that are none any more, as seen in the repository."""
        faults = self._faults.get(version, {})
        for sequence in [n for n, one in faults.items() if one.is_gap and n in seen]:
            del faults[sequence]

    def lasting(self, now_s: float) -> Iterator[tuple[int, DeltaFault]]:
        """Yield (version, fault) whose files are to be looked at now: they may have changed."""
        if now_s < self._recheck_at_s:
            return
        self._recheck_at_s = now_s + _RECHECK_S
        for version, faults in list(self._faults.items()):
            for fault in list(faults.values()):
                if fault.fingerprint is not None and fault.retry_at_s > now_s:
                    yield version, fault

    def looked_at(self, version: int, sequence: int, fingerprint: str) -> None:
        """Take what the files of a delta are now; it is tried again where they have changed.

        So is one whose files were not looked at before they were read: they may have changed since.
        What is tried again by itself anyway need not be, for that.
        """
        fault = self._faults.get(version, {}).get(sequence)
        if fault is None or fault.fingerprint == fingerprint:
            return
        if fault.fingerprint or fault.retry_at_s == _NEVER:
            fault = replace(fault, retry_at_s=0.0, times=0)
        self._faults[version][sequence] = replace(fault, fingerprint=fingerprint)

    def keep(self, versions: Collection[int]) -> None:
        """Forget what is in the way of other versions."""
        for version in self._faults.keys() - versions:
            del self._faults[version]

    def forget(self, version: int | None = None) -> None:
        """Have everything tried again, of one version or all."""
        if version is None:
            self._faults.clear()
        else:
            self._faults.pop(version, None)

    def wake_at_s(self, now_s: float, since_s: float | None = None) -> float | None:
        """Return when something is to be looked at again by itself.

        Args:
            now_s: now.
            since_s: since when nothing was looked at; None: it was just now.
        """
        since_s = now_s if since_s is None else since_s
        faults = [one for each in self._faults.values() for one in each.values()]
        times = [one.retry_at_s for one in faults if one.retry_at_s > since_s]
        if any(one.fingerprint is not None and one.retry_at_s > now_s for one in faults):
            times.append(max(self._recheck_at_s, now_s + 0.1))
        return min((at for at in times if at != _NEVER), default=None)

    def _retry_at_s(
        self,
        error: AnabranchError,
        times: int,
        since_s: float,
        now_s: float,
        *,
        is_gap: bool,
        passes: bool,
    ) -> float:
        if is_gap:
            due_s = since_s + self._gap_grace_s
            return due_s if due_s > now_s else now_s + _LAST_RETRY_S
        if not passes and not isinstance(error, _MAY_PASS):
            return _NEVER
        return now_s + min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(times - 1, 10))
