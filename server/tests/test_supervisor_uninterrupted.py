"""Work in threads: it gives way to requests, and is brought to its end."""

import asyncio
import os
import threading

import pytest

from anabranch_server.supervisor.uninterrupted import in_thread
from anabranch_testing.event_loops import on_loop


@on_loop
async def test_work_gives_way_to_whoever_wants_the_processor() -> None:
    def nice() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = nice()
    assert await in_thread(nice) == max(before, 10)
    assert nice() == before


@on_loop
async def test_what_comes_too_late_for_who_was_cancelled_is_given_back() -> None:
    begun, end = threading.Event(), threading.Event()
    discarded: list[str] = []

    def work() -> str:
        begun.set()
        assert end.wait(20.0)
        return "made"

    waiting = asyncio.ensure_future(in_thread(work, discarded.append))
    assert await asyncio.to_thread(begun.wait, 20.0)
    waiting.cancel()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert discarded == ["made"]


@on_loop
async def test_what_work_raises_is_raised() -> None:
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await in_thread(work)
