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
from anabranch_server.processes.loader_messages import (
    Applied,
    ApplyDeltas,
    DeltaFault,
    Found,
    LoadVersion,
    Progress,
)
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
from anabranch_wire.delta import Delta, decode
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
    """Finds a version good unless its file says otherwise, and deltas as `write_delta` wrote them.

    A delta is bad where its `extra` says `broken="why"` (`Corrupt`), or that and `kind="Conflict"`.
    As the real one it applies as many as it can, by the shortest way, and names what is in the way.

    Attributes:
        requests: (model, version) in their order.
        applied: (model, version, newest delta asked for) in their order.
        read: deltas whose contents were looked at, in their order.
        gate: while clear, requests wait after they said what they do.
        load_gate: the same of versions alone.
        is_turnstile: whether that gate closes behind each of them.
        begun: set by every request.
        refuse: raises why deltas cannot even be begun with; None lets them pass.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []
        self.applied: list[tuple[str, int, int]] = []
        self.read: list[int] = []
        self.last: LoadVersion | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.load_gate = asyncio.Event()
        self.load_gate.set()
        self.is_turnstile = False
        self.begun = asyncio.Event()
        self.refuse: Callable[[ApplyDeltas], AnabranchError | None] = lambda request: None

    async def apply(self, request: ApplyDeltas, on_progress: Callable[[Progress], None]) -> Applied:
        plan = request.plan
        self.applied.append((request.model, plan.version, request.upto))
        on_progress(Progress(0, "verifying", 1, 4))
        self.begun.set()
        await self.gate.wait()
        if (error := self.refuse(request)) is not None:
            raise error
        headers = _read_headers(Path(request.version_path), plan.delta, request.upto)
        chain, missing = _shortest_chain(headers, plan.delta, request.upto)
        at, fault, upserts, size = plan.delta, missing, 0, 0
        for header in chain:
            self.read.append(header.sequence)
            if broken := header.extra.get("broken"):
                kind = str(header.extra.get("kind", "Corrupt"))
                reason = str(header.extra.get("reason", "checksum"))
                fault = DeltaFault(header.sequence, kind, reason, str(broken))
                break
            at, upserts, size = header.sequence, upserts + 1, size + 10
        made = plan if at == plan.delta else _at_delta(plan, headers[at])
        return Applied(0, made, {"verifying": 1.0}, upserts, 0, size, fault)

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        self.requests.append((request.model, request.version))
        self.last = request
        on_progress(Progress(0, "verifying", 1, 4))
        self.begun.set()
        await self.gate.wait()
        await self.load_gate.wait()
        if self.is_turnstile:
            self.load_gate.clear()
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


def _read_headers(version: Path, after: int, upto: int) -> dict[int, Delta]:
    headers = {}
    for path in sorted(version.glob("deltas/*/delta.json")):
        if after < int(path.parent.name) <= upto:
            headers[int(path.parent.name)] = decode(path.read_bytes())
    return headers


def _shortest_chain(
    headers: Mapping[int, Delta], at: int, upto: int
) -> tuple[list[Delta], DeltaFault | None]:
    """Return what leads as far as possible in the fewest steps, and what is missing after it."""
    chain: list[Delta] = []
    while at < upto:
        ways = [one for one in headers.values() if one.replaces_from <= at + 1 <= one.sequence]
        if not ways:
            gone = DeltaFault(at + 1, "Conflict", "gap", f"delta {at + 1} is missing")
            return chain, gone
        chain.append(max(ways, key=lambda one: one.sequence))
        at = chain[-1].sequence
    return chain, None


def _at_delta(plan: VersionPlan, header: Delta) -> VersionPlan:
    return msgspec.structs.replace(
        plan,
        delta=header.sequence,
        step=header.step,
        event_time=header.event_time if header.event_time is not None else plan.event_time,
        published=header.created,
        notes=(*plan.notes, *header.extra.get("notes", ())),  # type: ignore[misc]
    )


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
        gap_grace_s: float = 60.0,
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
            gap_grace_s=gap_grace_s,
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
    server = KeptServer(root, state_dir, **told)  # type: ignore[arg-type]  # of many types
    running = asyncio.create_task(server.keeping.run(server.watcher))
    try:
        await server.keeping.first_look_done.wait()
        yield server
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
