"""The loaders of a server: one for versions, which may take minutes, and one for deltas.

Deltas are small and wanted at once, so they never wait for a version that is looked at. Invariant:
neither loader clears away what the other one makes, or has made and nobody was told of yet.
Everything belongs to the event loop.
"""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

import msgspec

from anabranch_server.processes.loader_messages import (
    Applied,
    ApplyDeltas,
    Found,
    LoadVersion,
    Progress,
)
from anabranch_server.processes.messages import Purpose
from anabranch_server.supervisor.loader_link import LoaderLink, Request

__all__ = ["Loaders"]

_MOST_DELTAS: Final = 1000
"""After so many answers the loader of deltas is replaced, which delays those that come just then by
a second or two. They leave less in its memory than versions do."""
_MARGIN_S: Final = 60.0
"""Between an answer and the moment at which its files count as in use; and for clocks."""


class Loaders:
    """Has versions and deltas looked at, each kind one after the other; see `VersionLoader`.

    Args:
        start: asks the launcher for a loader, and says whether it begins as work that gives way;
            `attach` answers it.
        in_use: files of the cache folder that processes may still be told of.
    """

    def __init__(
        self, start: Callable[[Purpose, bool], None], in_use: Callable[[], Collection[str]]
    ) -> None:
        self._in_use = in_use
        self._waiting: dict[int, ApplyDeltas] = {}
        self._count = 0
        self._versions = LoaderLink(
            partial(start, "versions"), complete=lambda request: self._complete(request, "deltas")
        )
        self._deltas = LoaderLink(
            partial(start, "deltas"),
            most_answers=_MOST_DELTAS,
            complete=lambda request: self._complete(request, "versions"),
        )

    @property
    def pids(self) -> Mapping[Purpose, int | None]:
        """The loaders' processes; None for one that there is not."""
        return {"versions": self._versions.pid, "deltas": self._deltas.pid}

    def attach(self, purpose: Purpose, pid: int, channel: int, pidfd: int) -> None:
        """Take the loader that was started; owns both descriptors from now on."""
        self._of(purpose).attach(pid, channel, pidfd)

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        """Have a version looked at; see `LoaderLink.load`."""
        return await self._versions.load(request, on_progress)

    async def apply(self, request: ApplyDeltas, on_progress: Callable[[Progress], None]) -> Applied:
        """Have deltas looked at; see `LoaderLink.apply`."""
        self._count += 1
        ticket = self._count
        self._waiting[ticket] = request
        try:
            return await self._deltas.apply(request, on_progress)
        finally:
            del self._waiting[ticket]

    def close(self) -> None:
        """End both; what they work at is asked no more."""
        self._versions.close()
        self._deltas.close()

    def _of(self, purpose: Purpose) -> LoaderLink:
        return self._versions if purpose == "versions" else self._deltas

    def _complete(self, request: Request, other: Purpose) -> Request:
        """Return a request with what has to stay in the cache folder as it is sent.

        It may have waited for others, which have made more meanwhile. A version whose first deltas
        are looked at is on no shelf yet.
        """
        coming = (path for one in self._waiting.values() for path in one.plan.kept_files)
        now_s = time.time()
        began_s = self._of(other).began_s
        since = min(now_s, now_s if began_s is None else began_s) - _MARGIN_S
        in_use = tuple({*request.in_use, *self._in_use(), *coming})
        return msgspec.structs.replace(request, in_use=in_use, since=since)
