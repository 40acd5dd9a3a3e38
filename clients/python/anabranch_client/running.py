"""Runs calls on threads that wait: the course of a call says what, a transport does it."""

import time
from typing import TypeVar

from anabranch_client.calls import Answer, Call
from anabranch_client.flights import Transport
from anabranch_client.policy import CallPolicy, Fail, Start, failure_of
from anabranch_wire.errors import AnabranchError

__all__ = ["run"]

T = TypeVar("T")


def run(policy: CallPolicy, transport: Transport, call: Call[T], timeout_s: float) -> T:
    """Return what a call comes to. Any thread may run any number of calls.

    Raises:
        AnabranchError: the last attempt's, or DeadlineExceeded.
    """
    now = time.monotonic()
    course = policy.begin(now, now + timeout_s, hedged=call.hedged)
    flights = transport.flights(alone=not (call.hedged and policy.hedges))
    try:
        while True:
            step = course.step(time.monotonic())
            if isinstance(step, Fail):
                raise step.error
            if isinstance(step, Start):
                flights.start(step.attempt, call, course.deadline)
                continue
            if not course.in_flight:
                time.sleep(max(0.0, step.until - time.monotonic()))
                continue
            landing = flights.wait(step.until)
            if landing is None:
                continue
            attempt, ended = landing
            now = time.monotonic()
            if not isinstance(ended, Answer):
                course.failed(attempt, ended.failure, now)
                continue
            try:
                result = call.read(ended)
            except AnabranchError as error:
                course.failed(attempt, failure_of(error), now)
            else:
                course.answered(attempt, now)
                return result
    finally:
        flights.cancel()
        course.close(time.monotonic())
