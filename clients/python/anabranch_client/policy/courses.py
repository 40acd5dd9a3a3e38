"""The course of one call: a state machine between a driver, which sends and waits, and the rules.

A driver asks `step` what to do, does it, and says how attempts ended, until an attempt answers or
`step` says `Fail`. The same machine drives blocking and asyncio clients.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anabranch_client.policy.balancing import Balancer, EjectionRules
from anabranch_client.policy.budgets import Budget
from anabranch_client.policy.failures import Blame, Failure
from anabranch_client.policy.hedging import HedgeRules, Latencies
from anabranch_client.policy.retrying import RetryRules, backoff_s
from anabranch_wire.errors import AnabranchError, DeadlineExceeded

__all__ = ["Attempt", "CallCounts", "CallPolicy", "Course", "Fail", "Start", "Step", "Wait"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One time that a call is sent.

    Attributes:
        number: within the call, from 0.
        endpoint: where to.
        began: when.
    """

    number: int
    endpoint: int
    began: float


@dataclass(frozen=True, slots=True)
class Start:
    """Send the call."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an attempt in flight, if there is any, at most until a moment."""

    until: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Cancel what is in flight and raise."""

    error: AnabranchError


Step = Start | Wait | Fail


@dataclass(frozen=True, slots=True)
class CallCounts:
    """What a client sent since it was made.

    Attributes:
        requests: calls.
        retries: attempts after one that failed.
        hedges: attempts beside one that took long.
    """

    requests: int
    retries: int
    hedges: int


class CallPolicy:
    """What the calls of one client share. Any thread may use it.

    Args:
        endpoints: how many.
        retries: when calls are sent again.
        hedges: when calls are sent twice; None for never.
        ejection: when endpoints are left out.
        chance: numbers from 0 to 1.
        now: the moment it begins.
    """

    def __init__(
        self,
        endpoints: int,
        *,
        retries: RetryRules,
        hedges: HedgeRules | None,
        ejection: EjectionRules,
        chance: Callable[[], float],
        now: float,
    ) -> None:
        self._lock: Final = threading.Lock()
        self._balancer: Final = Balancer(endpoints, ejection)
        self._retries: Final = retries
        self._hedges: Final = hedges
        self._retry_budget: Final = Budget(retries.budget, now)
        self._hedge_budget: Final = Budget(hedges.budget(), now) if hedges is not None else None
        self._latencies: Final = Latencies()
        self._chance: Final = chance
        self._requests = self._retried = self._hedged = 0

    def begin(self, now: float, deadline: float, *, hedged: bool) -> "Course":
        """Count a request and return its course.

        Args:
            now: when it begins.
            deadline: when its answer is of no use any more.
            hedged: whether it may be sent twice, if the client does that at all.
        """
        with self._lock:
            self._requests += 1
            self._retry_budget.earn()
            if self._hedge_budget is not None:
                self._hedge_budget.earn()
        delay_s = self._hedge_delay_s() if hedged else None
        return Course(self, now, deadline, self._retries.attempts, delay_s)

    def counts(self) -> CallCounts:
        """Return what was sent until now."""
        with self._lock:
            return CallCounts(self._requests, self._retried, self._hedged)

    @property
    def hedges(self) -> bool:
        """Whether any call is ever sent twice."""
        return self._hedges is not None

    def take_endpoint(self, now: float, tried: tuple[int, ...]) -> int:
        """Choose where an attempt goes; it is pending there until `give_back`."""
        with self._lock:
            return self._balancer.begin(now, tried)

    def take_retry(self, retry: int, now: float, deadline: float) -> float | None:
        """Return when to send again; None where that were too late, or the budget is spent.

        An endpoint that asked to be left alone for a while is waited for only where no other one
        would take the call.
        """
        with self._lock:
            wait_s = backoff_s(self._retries, retry, self._chance())
            moment = now + self._balancer.rest_s(now) + wait_s
            if moment >= deadline or not self._retry_budget.spend(now):
                return None
            self._retried += 1
            return moment

    def take_hedge(self, now: float) -> bool:
        """Return whether a hedge is within the budget, and count it."""
        with self._lock:
            if self._hedge_budget is None or not self._hedge_budget.spend(now):
                return False
            self._hedged += 1
            return True

    def give_back(
        self, attempt: Attempt, now: float, failure: Failure | None, *, cancelled: bool = False
    ) -> None:
        """Say how an attempt ended: answered, failed, or cancelled because another answered."""
        blame = None if cancelled else (failure.blame if failure else Blame.NONE)
        with self._lock:
            wait_s = failure.wait_s if failure is not None else None
            self._balancer.end(attempt.endpoint, now, blame, wait_s)
            if self._hedges is not None and failure is None:
                self._latencies.add(now - attempt.began)

    def _hedge_delay_s(self) -> float | None:
        if self._hedges is None:
            return None
        if self._hedges.after_s is not None:
            return self._hedges.after_s
        with self._lock:
            return self._latencies.value()


class Course:
    """One call. For one thread at a time.

    Args:
        policy: what all calls share.
        now: when it begins.
        deadline: when its answer is of no use any more.
        attempts: most of them, hedges not counted.
        hedge_delay_s: how long to wait for the first attempt; None for as long as there is time.
    """

    def __init__(
        self,
        policy: CallPolicy,
        now: float,
        deadline: float,
        attempts: int,
        hedge_delay_s: float | None,
    ) -> None:
        self._policy: Final = policy
        self._began: Final = now
        self._deadline: Final = deadline
        self._left = attempts
        self._hedge_delay_s: Final = hedge_delay_s
        self._hedge_at: float | None = None
        self._start_at: float | None = now
        self._in_flight: dict[int, Attempt] = {}
        self._tried: tuple[int, ...] = ()
        self._sent = 0
        self._end: AnabranchError | None = None

    @property
    def deadline(self) -> float:
        """When the answer is of no use any more."""
        return self._deadline

    @property
    def in_flight(self) -> bool:
        """Whether there is anything to wait for but time."""
        return bool(self._in_flight)

    @property
    def sent(self) -> int:
        """How often the call was sent."""
        return self._sent

    def step(self, now: float) -> Step:
        """Return what to do now."""
        if self._end is not None:
            return Fail(self._end)
        if now >= self._deadline:
            return Fail(DeadlineExceeded(f"no answer within {self._deadline - self._began:.6g} s"))
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._left -= 1
            if self._sent == 0 and self._hedge_delay_s is not None:
                self._hedge_at = now + self._hedge_delay_s
            return Start(self._send(now))
        if self._hedge_at is not None and now >= self._hedge_at:
            self._hedge_at = None
            if self._policy.take_hedge(now):
                return Start(self._send(now))
        moments = (self._deadline, self._start_at, self._hedge_at)
        return Wait(min(moment for moment in moments if moment is not None))

    def failed(self, attempt: Attempt, failure: Failure, now: float) -> None:
        """Say that an attempt failed."""
        del self._in_flight[attempt.number]
        self._policy.give_back(attempt, now, failure)
        if failure.final:
            self._end = failure.error
        elif not self._in_flight:
            self._hedge_at = None
            if failure.safe and self._left > 0:
                self._start_at = self._policy.take_retry(self._sent, now, self._deadline)
            if self._start_at is None:
                self._end = failure.error

    def answered(self, attempt: Attempt, now: float) -> None:
        """Say that an attempt has the answer."""
        del self._in_flight[attempt.number]
        self._policy.give_back(attempt, now, None)

    def close(self, now: float) -> None:
        """Say that what is in flight was cancelled, before the deadline or because of it."""
        late = Failure(DeadlineExceeded(""), blame=Blame.SILENT) if now >= self._deadline else None
        for attempt in self._in_flight.values():
            self._policy.give_back(attempt, now, late, cancelled=late is None)
        self._in_flight.clear()

    def _send(self, now: float) -> Attempt:
        endpoint = self._policy.take_endpoint(now, self._tried)
        attempt = Attempt(self._sent, endpoint, now)
        self._in_flight[attempt.number] = attempt
        self._tried += (endpoint,)
        self._sent += 1
        return attempt
