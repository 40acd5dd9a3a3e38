"""Versions of one model that could not be served, and when they may be tried again.

A version is tried again when its files change or someone asks; one that could not be reached, that
a store sent otherwise than it was published, or that loaders died of, also after a while: that may
pass without a change to its files.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch_server.describe import FailureView
from anabranch_server.load_failures import FailureReason, failure_reason
from anabranch_server.processes.failures import error_of
from anabranch_wire.errors import AnabranchError, Internal, Unavailable, Unproven

__all__ = ["Failures", "of_delta", "of_version"]

_MAY_PASS: Final = (Unavailable, Unproven, Internal)
"""Loaders may have died for want of memory, or because somebody killed them."""
_FIRST_RETRY_S: Final = 10.0
_LAST_RETRY_S: Final = 600.0


def of_version(number: int, error: AnabranchError, fate: str = "is not served") -> AnabranchError:
    """Return the error with the version that it is about, for whoever asked for more than that."""
    return error_of(type(error).__name__, f"version {number} {fate}: {error.message}")


def of_delta(sequence: int, error: AnabranchError) -> AnabranchError:
    """Return the error with the delta that it is about, where it does not say so itself."""
    if error.message.startswith("delta "):
        return error
    return error_of(type(error).__name__, f"delta {sequence}: {error.message}")


@dataclass(frozen=True, slots=True)
class _Failure:
    fingerprint: str
    error: AnabranchError
    times: int
    retry_at_s: float | None


class Failures:
    """What failed with one model. Belongs to the event loop; `now_s` is its clock."""

    def __init__(self) -> None:
        self._failures: dict[int, _Failure] = {}
        self._before: dict[int, _Failure] = {}  # of versions that were found good since
        self.last: FailureView | None = None

    def note(
        self, number: int | None, fingerprint: str, error: AnabranchError, now_s: float
    ) -> FailureView:
        """Remember a failure of a version, or of the model where `number` is None."""
        view = self.show(number, error, failure_reason(error))
        if number is not None:
            known = self._failures.get(number) or self._before.get(number)
            is_same = known is not None and known.fingerprint == fingerprint
            times = known.times + 1 if known is not None and is_same else 1
            self._failures[number] = _Failure(
                fingerprint, error, times, self._retry_at_s(error, times, now_s)
            )
        return view

    def show(
        self,
        number: int | None,
        error: AnabranchError,
        reason: FailureReason,
        delta: int | None = None,
    ) -> FailureView:
        """Make it the last failure, without holding it against the version."""
        self.last = FailureView(time.time(), number, delta, reason, error.message)
        return self.last

    def broken(self, now_s: float) -> Mapping[int, str]:
        """Return version -> fingerprint of the files that are not to be tried now."""
        return {
            number: failure.fingerprint
            for number, failure in self._failures.items()
            if failure.retry_at_s is None or failure.retry_at_s > now_s
        }

    def next_retry_s(self, since_s: float) -> float | None:
        """Return when the next version may be tried again by itself.

        Args:
            since_s: of times that had passed by then the versions have had their turn.
        """
        times = [one.retry_at_s for one in self._failures.values() if one.retry_at_s is not None]
        return min((at_s for at_s in times if at_s > since_s), default=None)

    def error_of(self, number: int) -> AnabranchError | None:
        """Return why a version is not served."""
        failure = self._failures.get(number)
        return None if failure is None else failure.error

    def passed(self, number: int) -> None:
        """Take note that a version was looked at and is good; it is not served yet."""
        if (failure := self._failures.pop(number, None)) is not None:
            self._before[number] = failure

    def forget(self, number: int | None = None) -> None:
        """Let a version be tried again, as if it had never failed; None means all."""
        if number is None:
            self._failures.clear()
            self._before.clear()
        else:
            self._failures.pop(number, None)
            self._before.pop(number, None)

    @staticmethod
    def _retry_at_s(error: AnabranchError, times: int, now_s: float) -> float | None:
        if not isinstance(error, _MAY_PASS):
            return None
        return now_s + min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(times - 1, 10))
