"""A repository at a URL, mirrored again and again into the folder that the watcher looks at."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from anabranch_wire.errors import AnabranchError, Unavailable

__all__ = ["RemoteSource", "SourceCounts"]

_log = logging.getLogger(__name__)

_LONGEST_S: Final = 30.0
_PATIENCE_S: Final = 15.0
"""How long a start with a skeleton of earlier waits for a store that does not answer."""


class Mirrored(Protocol):
    """As much of a `Mirror` as is needed. Used by one thread at a time."""

    @property
    def holds_models(self) -> bool:
        """Whether there is something to start with."""
        ...

    def look(self) -> bool:
        """Mirror; returns whether anything changed."""
        ...


@dataclass(slots=True)
class SourceCounts:
    """What became of looks at a remote repository. Written and read on the event loop.

    Attributes:
        is_reachable: whether the last look could be taken; None before the first.
        failures: looks that could not be taken.
    """

    is_reachable: bool | None = None
    failures: int = 0


class RemoteSource:
    """Mirrors a remote repository every `poll_s`. Belongs to the event loop; threads mirror.

    While it cannot be reached, what was mirrored stays, and it is asked more and more seldom, at
    random moments, so that many servers do not ask at the same time.

    Args:
        open_mirror: makes the mirror; called on a thread, since it reads what was mirrored before.
        poll_s: time between looks.
        on_change: called after a look that changed the folder.
        counts: told what becomes of looks.
        patience_s: how long a start waits for the store where the mirror holds models already.
    """

    def __init__(
        self,
        open_mirror: Callable[[], Mirrored],
        poll_s: float,
        on_change: Callable[[], None],
        counts: SourceCounts,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._open_mirror = open_mirror
        self._poll_s = poll_s
        self._on_change = on_change
        self._counts = counts
        self._patience_s = patience_s
        self._turn = asyncio.Lock()
        self._mirror: Mirrored | None = None
        self._fault = ""
        self._failed = 0

    async def begin(self) -> None:
        """See `Source`: after the first look, or at once where the store is down.

        A server that has mirrored nothing yet waits for the store.
        """
        while True:
            try:
                async with asyncio.timeout(self._patience_s):
                    await self.refresh()
                return
            except TimeoutError:
                self._complain("the repository does not answer")
            except AnabranchError as error:
                self._complain(error.message)
            except Exception:  # the edge: whatever a store's library does
                _log.exception("a look failed", extra={"event": "internal_error"})
            if self._mirror is not None and self._mirror.holds_models:
                _log.warning(
                    "starting with what was mirrored before",
                    extra={"event": "repository_from_cache"},
                )
                return
            await asyncio.sleep(self._wait_s())

    async def refresh(self) -> None:
        """See `Source`. Who cancels is let go at once; a look that has begun goes on."""
        await asyncio.shield(asyncio.ensure_future(self._refresh()))

    async def run(self) -> None:
        """See `Source`."""
        while True:
            await asyncio.sleep(self._wait_s())
            try:
                await self.refresh()
            except AnabranchError as error:
                self._complain(error.message)
            except Exception:  # the edge: whatever a store's library does, the next look is taken
                _log.exception("a look failed", extra={"event": "internal_error"})

    async def _refresh(self) -> None:
        async with self._turn:
            try:
                if self._mirror is None:
                    self._mirror = await asyncio.to_thread(self._open_mirror)
                changed = await asyncio.to_thread(self._mirror.look)
            except Exception as error:
                self._failed += 1
                self._counts.failures += 1
                self._counts.is_reachable = False
                if isinstance(error, OSError):
                    raise Unavailable(f"cache folder: {error.strerror or error}") from None
                raise
            self._failed = 0
            self._counts.is_reachable = True
            if self._fault:
                self._fault = ""
                _log.info(
                    "the repository can be read again", extra={"event": "repository_readable"}
                )
            if changed:
                self._on_change()

    def _wait_s(self) -> float:
        """How long until the next look: longer after each that failed, within bounds."""
        if not self._failed:
            return self._poll_s
        longest = max(self._poll_s, _LONGEST_S)
        wait_s = min(longest, self._poll_s * 2.0 ** min(self._failed, 16))
        return wait_s * random.uniform(0.5, 1.0)

    def _complain(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            _log.error("%s; what is served stays", fault, extra={"event": "repository_unreadable"})
