"""Runs calls on an event loop: the course of a call says what, a transport does it."""

import asyncio
import time
from typing import Protocol, TypeVar

from anabranch_client.calls import Answer, Call
from anabranch_client.policy import (
    Attempt,
    AttemptFailed,
    CallPolicy,
    Course,
    Fail,
    Start,
    failure_of,
)
from anabranch_wire.errors import AnabranchError

__all__ = ["AsyncTransport", "run"]

T = TypeVar("T")


class AsyncTransport(Protocol):
    """Connections to all endpoints of a client. Belongs to one event loop."""

    async def send(self, endpoint: int, call: Call[object], deadline: float) -> Answer:
        """Send a call and return the whole answer; cancelling it cancels the call at the server.

        Raises:
            AttemptFailed: there is none.
            TimeoutError: nothing came until the deadline.
        """
        ...

    async def close(self) -> None:
        """Close idle connections; those in use are closed after it."""


async def run(policy: CallPolicy, transport: AsyncTransport, call: Call[T], timeout_s: float) -> T:
    """Return what a call comes to.

    Raises:
        AnabranchError: the last attempt's, or DeadlineExceeded.
    """
    now = time.monotonic()
    course = policy.begin(now, now + timeout_s, hedged=call.hedged)
    if not (call.hedged and policy.hedges):
        return await _run_alone(course, transport, call)
    return await _run_hedged(course, transport, call)


async def _run_alone(course: Course, transport: AsyncTransport, call: Call[T]) -> T:
    """Run a call with at most one attempt at a time, on this task."""
    try:
        while True:
            step = course.step(time.monotonic())
            if isinstance(step, Fail):
                raise step.error
            if not isinstance(step, Start):
                await asyncio.sleep(max(0.0, step.until - time.monotonic()))
                continue
            try:
                answer = await transport.send(step.attempt.endpoint, call, course.deadline)
            except AttemptFailed as failed:
                course.failed(step.attempt, failed.failure, time.monotonic())
            except TimeoutError:
                await asyncio.sleep(max(0.0, course.deadline - time.monotonic()))
            else:
                result = _read(course, step.attempt, call, answer)
                if result is not None:
                    return result[0]
    finally:
        course.close(time.monotonic())


async def _run_hedged(course: Course, transport: AsyncTransport, call: Call[T]) -> T:
    """Run a call with attempts beside each other, each on a task of its own."""
    tasks: dict[asyncio.Task[Answer], Attempt] = {}
    try:
        while True:
            step = course.step(time.monotonic())
            if isinstance(step, Fail):
                raise step.error
            if isinstance(step, Start):
                sending = transport.send(step.attempt.endpoint, call, course.deadline)
                tasks[asyncio.ensure_future(sending)] = step.attempt
                continue
            wait_s = max(0.0, step.until - time.monotonic())
            if not tasks:
                await asyncio.sleep(wait_s)
                continue
            done, _ = await asyncio.wait(tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                attempt = tasks.pop(task)
                try:
                    answer = task.result()
                except AttemptFailed as failed:
                    course.failed(attempt, failed.failure, time.monotonic())
                    continue
                except TimeoutError:
                    continue  # the course has the same deadline
                result = _read(course, attempt, call, answer)
                if result is not None:
                    return result[0]
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        course.close(time.monotonic())


def _read(course: Course, attempt: Attempt, call: Call[T], answer: Answer) -> tuple[T] | None:
    """Return the result of an answer; None where it is an error, which the course is told."""
    now = time.monotonic()
    try:
        result = call.read(answer)
    except AnabranchError as error:
        course.failed(attempt, failure_of(error), now)
        return None
    course.answered(attempt, now)
    return (result,)
