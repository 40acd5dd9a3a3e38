"""Tests that are coroutines."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

__all__ = ["on_loop"]

P = ParamSpec("P")


def on_loop(
    test: Callable[P, Coroutine[Any, Any, None]], timeout_s: float = 60.0
) -> Callable[P, None]:
    """Run a test on an event loop of its own; it fails when it takes longer than `timeout_s`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(timeout_s):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run
