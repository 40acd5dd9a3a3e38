"""Keepers without processes: states are current at once, versions as good as their files say."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from anabranch_model_store.memory import check_fits
from anabranch_runtime.ranking.plans import ItemTablePlan
from anabranch_server.processes.messages import Applied, ApplyDeltas, Found, LoadVersion, Progress
from anabranch_server.processes.plans import (
    CutPlan,
    PartPlan,
    RowPlan,
    StatePlan,
    StorePlan,
    VersionPlan,
)
from anabranch_server.supervisor.holds import Records
from anabranch_server.supervisor.keeper_counts import ReloadCounts
from anabranch_server.supervisor.keeping import Keeping
from anabranch_server.supervisor.models import ModelAdministration
from anabranch_server.supervisor.surroundings import Surroundings, VersionLoader
from anabranch_server.supervisor.watching import Scanner, Watcher
from anabranch_testing.ranked_models import ranked_plan
from anabranch_wire.errors import AnabranchError, Corrupt

__all__ = ["KeptServer", "MemorySwitching", "NamedLoader", "kept_server", "write_version"]


def write_version(model: Path, version: int, **told: object) -> Path:
    """Write a version that `NamedLoader` finds good, or broken with `broken="why"`.

    With `tables=1000` it has tables of so many bytes; with `dense=100` too they are cut out of its
    graph, and that many bytes are left. With `items=1000` it has an item table of so many bytes.
    """
    folder = model / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_text(json.dumps(told))
    return folder


class MemorySwitching:
    """Makes states current as soon as they are decided.

    Attributes:
        states: model -> what is current.
        switches: (model, state) in their order.
        refuse: raises why workers cannot prepare a state; None lets it pass.
        gate: while clear, switches wait before their decision.
        lacking: models that a worker could not prepare.
        orphaned: models whose rows belong to a supervisor that is gone.
        given_up: models whose workers were left as they are.
    """

    def __init__(self, adopted: Mapping[str, StatePlan] | None = None) -> None:
        self.states: dict[str, StatePlan] = dict(adopted or {})
        self.switches: list[tuple[str, StatePlan | None]] = []
        self.refuse: Callable[[StatePlan | None], AnabranchError | None] = lambda state: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.lacking: set[str] = set()
        self.orphaned: set[str] = set()
        self.given_up: list[str] = []
        self._adopted = dict(adopted or {})
        self._epoch = 0

    def adopted(self) -> Mapping[str, StatePlan]:
        return self._adopted

    async def switch(
        self, model: str, state: StatePlan | None, decide: Callable[[int], Awaitable[None]]
    ) -> int:
        await self.gate.wait()
        error = self.refuse(state)
        if error is not None:
            raise error
        self._epoch += 1
        await decide(self._epoch)
        self.switches.append((model, state))
        self.lacking.discard(model)
        self.orphaned.discard(model)
        if state is None:
            self.states.pop(model, None)
        else:
            self.states[model] = state
        return self._epoch

    def lacks(self, model: str) -> bool:
        return model in self.lacking or model in self.orphaned

    def is_orphaned(self, model: str) -> bool:
        return model in self.orphaned

    def give_up(self, model: str) -> None:
        self.given_up.append(model)


class NamedLoader:
    """Finds a version good unless its file says otherwise.

    Attributes:
        requests: (model, version) in their order.
        applied: (model, version, newest delta asked for) in their order.
        gate: while clear, requests wait after they said what they do.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []
        self.applied: list[tuple[str, int, int]] = []
        self.last: LoadVersion | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def apply(self, request: ApplyDeltas, on_progress: Callable[[Progress], None]) -> Applied:
        self.applied.append((request.model, request.plan.version, request.upto))
        on_progress(Progress(0, "verifying", 1, 4))
        await self.gate.wait()
        made = msgspec.structs.replace(request.plan, delta=request.upto)
        return Applied(0, made, {"verifying": 1.0})

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        self.requests.append((request.model, request.version))
        self.last = request
        on_progress(Progress(0, "verifying", 1, 4))
        await self.gate.wait()
        data = (Path(request.version_path) / "model.onnx").read_bytes()
        told = json.loads(data)
        if broken := told.get("broken"):
            raise Corrupt(broken)
        tables, items = told.get("tables"), told.get("items")  # bytes of either
        dense = told.get("dense")  # bytes of what is left without lookups, where they are cut
        each = len(data) if dense is None else dense
        check_fits(each, (tables or 0) + (items or 0), 0, request.available_bytes)
        plan = VersionPlan(
            model=request.model,
            version=request.version,
            delta=0,
            identity=f"sha256:{hashlib.sha256(data).hexdigest()}",
            path=f"{request.version_path}/model.onnx",
            inputs=(),
            outputs=(),
            rows=RowPlan(True, 1, (), (), "", True),
            user_inputs=(),
            description="",
            examples=(),
            warm_rounds=5,
            weight_bytes=each,
            cut=None if dense is None else CutPlan(PartPlan("d.onnx", (), ()), None, None, ()),
            store=None if tables is None else StorePlan("rows.seg", tables, tables, b"", ()),
            ranking=None
            if items is None
            else ranked_plan(item_table=ItemTablePlan("i", {}, (), items)),
            event_time=told.get("event_time"),
            published=told.get("published"),
            notes=tuple(told.get("notes", ())),
        )
        return Found(0, plan, {"verifying": 1.0})


class KeptServer:
    """Everything that decides what is served, around a folder.

    Attributes:
        root: the repository.
        switching: what became current.
        loader: what looked at versions.
        keeping: every model.
        admin: what people ask.
        watcher: takes looks.
        counts: what happened.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        *,
        switching: MemorySwitching | None = None,
        loader: VersionLoader | None = None,
        named: tuple[str, ...] | None = None,
        launch: str = "one",
        settle_s: float = 0.0,
        poll_s: float = 3600.0,
        wall_s: float = 4e9,
        available_bytes: int | None = None,
        workers: int = 2,
    ) -> None:
        self.root = root
        self.switching = switching or MemorySwitching()
        self.named_loader = NamedLoader()
        self.counts = ReloadCounts()
        self.available_bytes = available_bytes
        around = Surroundings(
            switching=self.switching,
            loader=loader or self.named_loader,
            records=Records(state_dir),
            counts=self.counts,
            launch=launch,
            workers=workers,
            cores=2,
            available_bytes=lambda: self.available_bytes,
            is_serving=lambda: self.keeping.first_look_done.is_set(),
        )
        self.keeping = Keeping(around, named, settle_s)
        self.watcher = Watcher(
            Scanner(root, named, settle_s), poll_s, self.keeping.take, lambda: wall_s
        )
        self.admin = ModelAdministration(self.keeping, self.watcher.look)

    def state(self, model: str = "m") -> StatePlan:
        """Return what a model serves."""
        return self.switching.states[model]

    def served(self, model: str = "m") -> tuple[tuple[int, ...], int | None]:
        """Return the versions a model serves, and the default one."""
        state = self.state(model)
        return state.served, state.default

    async def look(self) -> None:
        """Look, and wait until everything that was seen is done."""
        await self.watcher.look()
        await self.settled()

    async def settled(self) -> None:
        """Wait until no keeper has anything to do."""
        for keeper in list(self.keeping.keepers.values()):
            await keeper.settled.wait()


@asynccontextmanager
async def kept_server(root: Path, state_dir: Path, **told: object) -> AsyncIterator[KeptServer]:
    """Run a `KeptServer` until the block ends; its first look is over when the block begins."""
    server = KeptServer(root, state_dir, **told)  # type: ignore[arg-type]
    running = asyncio.create_task(server.keeping.run(server.watcher))
    try:
        await server.keeping.first_look_done.wait()
        yield server
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
