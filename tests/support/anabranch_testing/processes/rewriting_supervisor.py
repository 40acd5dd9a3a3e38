"""A supervisor that rewrites all marked rows again and again; see `rewriting`.

They are those of the newest version; another one begins with the last marker.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from anabranch_runtime.store import Base, Change
from anabranch_server.processes.boot import Boot
from anabranch_server.processes.plans import RunPlan, StorePlan
from anabranch_server.supervisor import process, start
from anabranch_server.supervisor.stores import Stores
from anabranch_testing.marked_rows import ROWS, TABLES, marking, marking_numbered
from anabranch_wire.errors import AnabranchError, Unavailable
from anabranch_wire.plan import decode

_run_dir = Path()
_PAUSE_S = 0.02


def _marker() -> int:
    """Return the last marker that was decided; 0 before the first."""
    place = _run_dir / "marker"
    return int(place.read_text()) if place.exists() else 0


def _decided(store: StorePlan, runs: Sequence[RunPlan]) -> Sequence[Callable[[Change], None]]:
    is_numbered = decode(store.plan).tables[0].keys == "dense_id"
    return [(marking_numbered if is_numbered else marking)(float(_marker()))]


class _RewritingStores(Stores):
    def __init__(
        self, base: Base, incarnation: int, available_bytes: Callable[[], int | None]
    ) -> None:
        super().__init__(base, incarnation, available_bytes, _decided)

    async def rewrite(self) -> None:
        """Give all rows the next marker, for ever."""
        room = dict.fromkeys(range(len(TABLES)), ROWS)
        while True:
            wanted = _marker() + 1
            newest = max(self.stores("m"), key=lambda each: each[0].version, default=None)
            version = 1 if newest is None else newest[0].version

            async def decide(epoch: int, wanted: int = wanted, version: int = version) -> None:
                if max(each.version for each, _ in self.stores("m")) != version:
                    # It waited for a switch to a newer version, which has the marker before.
                    raise Unavailable("another version is the newest by now")
                beside = _run_dir / "marker.new"
                beside.write_text(str(wanted))
                beside.rename(_run_dir / "marker")

            try:
                is_numbered = newest is not None and newest[1].tables[0].keys == "dense_id"
                fill = (marking_numbered if is_numbered else marking)(float(wanted))
                await self.change("m", version, fill, decide, room)
            except AnabranchError:  # not served yet, or a worker has died of it
                await asyncio.sleep(_PAUSE_S)


class _RewritingProcess(process.SupervisorProcess):
    def __init__(self, boot: Boot) -> None:
        global _run_dir
        _run_dir = Path(boot.run_dir)
        super().__init__(boot)

    async def run(self) -> int:
        """Look after the server, and rewrite."""
        assert isinstance(self._stores, _RewritingStores)
        rewriting = asyncio.create_task(self._guard(self._stores.rewrite()))
        try:
            return await super().run()
        finally:
            rewriting.cancel()
            await asyncio.gather(rewriting, return_exceptions=True)


if __name__ == "__main__":
    setattr(process, "Stores", _RewritingStores)  # noqa: B010 - not exported
    setattr(start, "SupervisorProcess", _RewritingProcess)  # noqa: B010
    start.run_supervisor(sys.argv)
