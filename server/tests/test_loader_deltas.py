"""Deltas in a loader: from the plan of a version to the plan after them, by a real process too."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.runs import RunFile
from anabranch_model_store.deltas.weight_files import read_weights
from anabranch_server.loader.applying import DeltaDesk
from anabranch_server.loader.building import GraphBuilder
from anabranch_server.loader.examination import examine
from anabranch_server.loader.row_cache import RowCache
from anabranch_server.processes.loader_messages import (
    Applied,
    ApplyDeltas,
    Found,
    LoadVersion,
    Progress,
    Refused,
)
from anabranch_server.processes.planned_models import dense_model
from anabranch_server.processes.plans import RunPlan, VersionPlan
from anabranch_server.supervisor.loader_link import LoaderLink
from anabranch_testing.event_loops import on_loop
from anabranch_testing.loaders import started_loader
from anabranch_testing.written_deltas import DeltaWriter, RowsWritten
from anabranch_wire.delta import Delta

GRAPH = """<ir_version: 8, opset_import: ["": 17]>
rank (int64[N] item, float[N, 4] x) => (float[N, 1] score)
{ i = Gather(items, item) all = Concat <axis: int = 1> (x, i)
  h = Gemm(all, w, b) a = Relu(h) score = MatMul(a, v) }"""
SHAPES = {"items": (50, 6), "w": (10, 8), "b": (8,), "v": (8, 1)}


class Shop:
    """A model whose table is cut out, a cache folder, and a desk that applies deltas."""

    def __init__(self, root: Path) -> None:
        self.model, self.cache = root / "m", root / "cache"
        folder = self.model / "1"
        folder.mkdir(parents=True)
        graph = onnx.parser.parse_model(GRAPH)
        rng = np.random.default_rng(1)
        for name, shape in SHAPES.items():
            array = rng.normal(scale=0.3, size=shape).astype(np.float32)
            graph.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        onnx.save(graph, folder / "model.onnx")
        (folder / "model.yaml").write_text("optimize: {min_table_bytes: 0}\n")
        (self.model / "serving.yaml").write_text("")
        self.said: list[Progress] = []
        self.desk = DeltaDesk(self.cache)
        self.plan = self.load()
        self.writer = DeltaWriter(folder, self.plan.identity)

    def load(self) -> VersionPlan:
        """Return the version as a loader finds it."""
        request = LoadVersion(
            0,
            "m",
            1,
            str(self.model),
            str(self.model / "1"),
            "",
            priority="normal",
            available_bytes=None,
        )
        rows = RowCache(self.cache, 0.25)
        found = examine(request, self.said.append, GraphBuilder(self.cache), rows)
        assert isinstance(found, Found), found
        return found.version

    def request(self, plan: VersionPlan, upto: int, serving: str = "") -> ApplyDeltas:
        """Ask for deltas."""
        return ApplyDeltas(
            number=7, model="m", model_path=str(self.model),
            version_path=str(self.model / "1"), serving_yaml=serving, plan=plan, upto=upto,
            priority="normal", available_bytes=None, in_use=plan.kept_files,
        )  # fmt: skip

    def apply(self, plan: VersionPlan, upto: int, serving: str = "") -> Applied:
        """Apply deltas as the process does."""
        found = self.desk.apply(self.request(plan, upto, serving), self.said.append, LocalOrigin())
        assert isinstance(found, Applied), found
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Applied) == found
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.desk.close()


def items(keys: list[int], number: float) -> RowsWritten:
    """Return rows of the table."""
    return RowsWritten("items", keys, np.full((len(keys), 6), number, np.float32))


def changed(*runs: RunPlan) -> dict[int, float]:
    """Return what runs make of rows: key -> first number."""
    found: dict[int, float] = {}
    for run in runs:
        for table in RunFile.open(Path(run.path)).tables:
            found.update(zip(table.keys.tolist(), table.values[:, 0].tolist(), strict=True))
    return found


def test_a_loaded_version_says_how_deltas_reach_its_graphs(shop: Shop) -> None:
    updates = shop.plan.updates
    assert updates is not None
    assert Path(updates.dense).is_relative_to(shop.cache / "cut")
    assert (updates.user, updates.weights) == (None, None)
    assert shop.plan.cut is not None
    assert shop.plan.cut.dense.path != updates.dense, "workers build the optimised form"
    assert updates.dense in shop.plan.kept_files
    assert (shop.plan.runs, shop.plan.increment) == ((), None)


def test_rows_change_nothing_but_runs(shop: Shop) -> None:
    shop.writer.write(1, items([3, 9], 1.0))
    found = shop.apply(shop.plan, 1)

    plan = found.version
    assert (found.upserts, found.deletes, found.fault) == (2, 0, None)
    assert found.bytes > 0
    assert set(found.phase_ms) == {"fetching", "verifying"}
    assert (plan.delta, plan.step, plan.event_time, plan.published) == (1, 10, 901.0, 1001.0)
    assert plan.increment is not None
    assert plan.runs == (plan.increment,)
    assert changed(plan.increment) == {3: 1.0, 9: 1.0}
    assert plan.increment.path in plan.kept_files
    before = msgspec.structs.replace(
        plan, delta=0, step=None, event_time=None, published=None, runs=(), increment=None
    )
    assert before == shop.plan
    assert shop.said[-1] == Progress(7, "verifying")


def test_weights_change_graphs_and_rows_stay(shop: Shop) -> None:
    shop.writer.write(1, items([3], 1.0))
    weight = np.full((8, 1), 0.5, np.float32)
    shop.writer.write(2, dense={"v": weight})
    first = shop.apply(shop.plan, 1).version
    plan = shop.apply(first, 2).version

    assert plan.updates is not None
    assert plan.updates.weights is not None
    assert plan.updates.weights in plan.kept_files
    assert plan.cut is not None
    assert first.cut is not None
    assert plan.cut.dense.optimized
    assert plan.cut.dense.path != first.cut.dense.path
    assert plan.path == first.path
    assert changed(*plan.runs) == {3: 1.0}
    assert dense_model(plan).cut is not None
    again = shop.apply(plan, 2).version
    assert again == plan


def test_a_backlog_of_weights_is_what_the_last_ones_are(shop: Shop) -> None:
    for number in (1, 2, 3):
        weight = np.full((8, 1), number, np.float32)
        shop.writer.write(number, items([number], number), dense={"v": weight})
    at_once = shop.apply(shop.plan, 3).version
    plan = shop.plan
    for number in (1, 2, 3):
        plan = shop.apply(plan, number).version

    assert at_once.cut == plan.cut
    assert at_once.updates == plan.updates
    assert changed(*at_once.runs) == changed(*plan.runs) == {1: 1.0, 2: 2.0, 3: 3.0}


def test_weights_are_found_again_after_a_restart(shop: Shop) -> None:
    for number in (1, 2):
        weight = np.full((8, 1), number, np.float32)
        shop.writer.write(number, items([number], number), dense={"v": weight})
    before = shop.apply(shop.plan, 2).version
    shop.desk.close()
    shop.desk = DeltaDesk(shop.cache)
    after = shop.apply(shop.load(), 2).version
    assert (after.cut, after.updates, after.runs) == (before.cut, before.updates, before.runs)


def test_after_a_restart_only_what_came_since_the_last_weights_is_read(shop: Shop) -> None:
    plan = shop.plan
    for number in (1, 2):
        dense = {"v": np.full((8, 1), number, np.float32), "b": np.full(8, number, np.float32)}
        shop.writer.write(number, items([number], number), dense=dense)
        plan = shop.apply(plan, number).version
    for number in (1, 2):
        for file in shop.writer.attempt(number).iterdir():
            file.unlink()
    shop.writer.write(3, items([3], 3.0))
    shop.writer.write(4, dense={"v": np.full((8, 1), 4, np.float32)})
    fresh = shop.load()

    rows_later = shop.apply(fresh, 3)
    assert rows_later.fault is None
    assert (rows_later.version.cut, rows_later.version.updates) == (plan.cut, plan.updates)
    weights_later = shop.apply(fresh, 4)
    step_by_step = shop.apply(shop.apply(plan, 3).version, 4)
    assert weights_later.fault is None
    assert weights_later.version.cut == step_by_step.version.cut
    assert weights_later.version.updates == step_by_step.version.updates


@pytest.mark.parametrize("replaced", [1, 2, 3])
def test_after_a_restart_weights_are_those_of_the_deltas_that_are_published_now(
    shop: Shop, replaced: int
) -> None:
    names = ("b", "w", "v")

    def publish(number: int, value: float) -> None:
        dense = {names[number - 1]: np.full(SHAPES[names[number - 1]], value, np.float32)}
        shop.writer.write(number, items([number], value), dense=dense)

    plan = shop.plan
    for number in (1, 2, 3):
        publish(number, number)
        plan = shop.apply(plan, number).version
    shutil.rmtree(shop.writer.attempt(replaced).parent)
    shop.writer.attempt_name = "f" * 16
    publish(replaced, 9.0)

    for number in (3, 2):  # all of them, and a rollback
        after = shop.apply(shop.load(), number).version
        assert after.updates is not None
        assert after.updates.weights is not None
        weights = read_weights(Path(after.updates.weights))
        found = {name: float(array.flat[0]) for name, array in weights.items()}
        expected = {n: 9.0 if n == replaced else float(n) for n in range(1, number + 1)}
        assert found == {names[n - 1]: value for n, value in expected.items()}
        assert changed(*after.runs) == expected


def test_damaged_weights_are_made_again_from_the_deltas(shop: Shop) -> None:
    dense = {"v": np.ones((8, 1), np.float32)}
    shop.writer.write(1, items([1], 1.0), dense=dense)
    before = shop.apply(shop.plan, 1).version
    assert before.updates is not None
    assert before.updates.weights is not None
    weights = Path(before.updates.weights)
    weights.write_bytes(weights.read_bytes()[:-1])

    refused = shop.apply(shop.plan, 1)
    assert refused.fault is not None
    assert (refused.fault.kind, refused.version) == ("Unavailable", shop.plan)
    again = shop.apply(shop.plan, 1)
    assert again.fault is None
    assert again.version.updates == before.updates


def test_what_is_bad_comes_with_what_was_reached(shop: Shop) -> None:
    shop.writer.write(1, items([3], 1.0))
    shop.writer.write(2, items([3], np.nan))
    found = shop.apply(shop.plan, 2)
    assert found.version.delta == 1
    assert found.fault is not None
    assert (found.fault.sequence, found.fault.kind, found.fault.reason) == (
        2, "Corrupt", "non_finite",
    )  # fmt: skip
    allowed = shop.apply(found.version, 2, "deltas: {non_finite: allow}")
    assert (allowed.version.delta, allowed.fault) == (2, None)


def test_weights_that_do_not_fit_leave_everything_as_it_was(shop: Shop) -> None:
    shop.writer.write(1, items([3], 1.0), dense={"v": np.ones((4, 4), np.float32)})
    found = shop.apply(shop.plan, 1)
    assert found.version == shop.plan
    assert found.fault is not None
    assert (found.fault.kind, found.fault.reason) == ("Conflict", "shape")
    shop.writer.write(
        2, items([3], 1.0), dense={"nothing": np.ones(4, np.float32)}, replaces_from=1
    )
    found = shop.apply(shop.plan, 2)
    assert found.fault is not None
    assert found.fault.reason in ("unknown_table", "shape")
    assert found.version.delta == 0


def test_a_broken_serving_yaml_refuses_deltas(shop: Shop) -> None:
    refused = shop.desk.apply(
        shop.request(shop.plan, 1, "deltas: {apply: never}"), shop.said.append, LocalOrigin()
    )
    assert isinstance(refused, Refused)
    assert (refused.number, refused.kind) == (7, "InvalidInput")
    assert "deltas.apply" in refused.error


def test_what_nobody_foresaw_ends_one_request_alone(shop: Shop) -> None:
    class Broken(LocalOrigin):
        def attempt(self, folder: Path, delta: Delta) -> Path:
            raise ZeroDivisionError

    shop.writer.write(1, items([3], 1.0))
    refused = shop.desk.apply(shop.request(shop.plan, 1), shop.said.append, Broken())
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.error) == (
        "Internal",
        "ZeroDivisionError while deltas were looked at",
    )
    assert shop.apply(shop.plan, 1).version.delta == 1


def test_notes_of_deltas_do_not_pile_up(shop: Shop) -> None:
    plan = msgspec.structs.replace(shop.plan, notes=("of the version", "delta 3: of a delta"))
    shop.writer.write(1, items([3], 1.0))
    assert shop.apply(plan, 1).version.notes == ("of the version",)


def test_rows_alone_need_no_graph_library() -> None:
    code = (
        "import sys, anabranch_server.loader.applying, anabranch_server.loader.process; "
        "print([m for m in ('onnx', 'onnx_ir', 'onnxruntime') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


@on_loop
async def test_a_real_loader_applies_deltas(shop: Shop) -> None:
    pids: list[int] = []

    def start(gives_way: bool) -> None:
        pid, channel, pidfd = started_loader(shop.cache)
        pids.append(pid)
        link.attach(pid, channel, pidfd)

    link = LoaderLink(start)
    phases: list[str] = []
    try:
        shop.writer.write(1, items([3], 1.0))
        request = shop.request(shop.plan, 1)
        first = await link.apply(request, lambda progress: phases.append(progress.phase))
        shop.writer.write(2, items([4], 2.0))
        second = await link.apply(shop.request(first.version, 2), lambda progress: None)
    finally:
        link.close()
        for pid in pids:
            await asyncio.to_thread(os.waitpid, pid, 0)

    assert len(pids) == 1
    assert phases == ["fetching", "fetching", "verifying"]
    assert changed(*second.version.runs) == {3: 1.0, 4: 2.0}
