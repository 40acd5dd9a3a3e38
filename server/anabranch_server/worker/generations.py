"""Row memory that this worker has mapped: each generation once, for all versions that read it.

Invariant: what is mapped stays so while a state that names it is kept, and for as long as somebody
holds a view of it; it is unmapped by a thread that holds up no request.
"""

import os
from collections.abc import Collection, Sequence
from functools import partial

from anabranch_runtime.row_source import StoreView
from anabranch_runtime.store import Generation, Residency, Segment
from anabranch_server.processes.packets import close_all
from anabranch_server.processes.plans import DESCRIPTORS_EACH, GenerationPlan
from anabranch_server.processes.priorities import give_way
from anabranch_server.worker.threads import FreshThreads
from anabranch_wire.errors import Internal, Unavailable

__all__ = ["Generations"]

_File = tuple[int, int]
"""Device and inode: the same for the same memory, however it came here."""


class Generations:
    """The generations of one model. Belongs to the event loop; maps in threads.

    Args:
        residency: of base rows.
        threads: where mapping and unmapping happen.
    """

    def __init__(self, residency: Residency, threads: FreshThreads) -> None:
        self._residency: Residency = residency
        self._threads = threads
        self._mapped: dict[int, Generation] = {}
        self._segments: dict[_File, Segment] = {}
        self._over: dict[int, _File] = {}

    def __len__(self) -> int:
        """Number of mapped generations."""
        return len(self._mapped)

    async def view(self, plan: GenerationPlan, fds: Sequence[int], *, idle: bool) -> StoreView:
        """Return what lookups read, mapped by now.

        Args:
            plan: which generation, at which version.
            fds: of the segment below it and of the generation; they stay the caller's.
            idle: whether to map only while nobody else has anything to do.

        Raises:
            AnabranchError: it cannot be mapped.
        """
        generation = self._mapped.get(plan.number)
        if generation is None:
            generation = await self._map(plan.number, fds, idle=idle)
        return StoreView(generation, plan.store_version)

    def keep_only(self, numbers: Collection[int]) -> None:
        """Let go of all other generations."""
        doomed: list[Generation | Segment] = []
        for number in self._mapped.keys() - numbers:
            doomed.append(self._mapped.pop(number))
            del self._over[number]
        for segment in self._segments.keys() - set(self._over.values()):
            doomed.append(self._segments.pop(segment))
        if doomed:
            self._threads.run("unmap", partial(_unmap, doomed), idle=False)

    async def _map(self, number: int, fds: Sequence[int], *, idle: bool) -> Generation:
        if len(fds) != DESCRIPTORS_EACH:
            raise Internal(f"generation {number} came with {len(fds)} descriptors")
        own: list[int] = []
        try:
            segment = _file(fds[0])
            own.extend(os.dup(fd) for fd in fds)
        except OSError as error:
            close_all(own)
            raise Unavailable(f"the tables cannot be mapped: {error.strerror}") from None

        residency, known = self._residency, self._segments.get(segment)

        def work() -> tuple[Segment, Generation]:
            try:
                base = Segment.map(own[0], residency=residency) if known is None else known
                return base, Generation.map(own[1], base)
            except OSError as error:
                text = f"the tables cannot be mapped: {error.strerror}"
                raise Unavailable(text) from None
            finally:
                close_all(own)

        base, generation = await self._threads.run("map", work, idle=idle)
        self._segments[segment] = base
        self._mapped[number], self._over[number] = generation, segment
        return generation


def _unmap(doomed: list[Generation | Segment]) -> None:
    """Let go of what nobody reads, which takes long where it is large."""
    give_way()
    doomed.clear()


def _file(fd: int) -> _File:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
