"""Cut models where whole ones run: stages, stores that change, and session groups."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime import cut_engines
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend, OrtCpuEngine
from anabranch_runtime.backends.protocol import Engine
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_engines import CutBinding, build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_batch, stage_request
from anabranch_runtime.executor_lookups import ExecutorLookups, LookupCount
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.requests import ReplySink, ScoreRequest, Ticket
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings
from anabranch_runtime.store import StoreWriter
from anabranch_testing.cut_graphs import (
    INPUTS,
    ITEMS,
    USER_NAMES,
    USERS,
    CutRequest,
    change_items,
    cut_graphs,
    cut_store,
    view_of_store,
)
from anabranch_testing.gated import GatedBackend
from anabranch_testing.groups import Collector, Counts, MakeGroup, until_asleep
from anabranch_wire.errors import InvalidInput, Unavailable
from anabranch_wire.snapshots import Snapshot

AXES = (0,) * len(INPUTS)
X, USER, CODE, AGE = 2, 1, 3, 4
Bind = Callable[..., CutBinding]


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return cut_store(tmp_path / "store")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(6)


@pytest.fixture
def bind(tmp_path: Path) -> Iterator[Bind]:
    """Build the model, and return what binds it."""
    engines: dict[bool, Engine] = {}
    with ExitStack() as stack:

        def make(*, user_once: bool = True) -> CutBinding:
            if user_once not in engines:
                model = cut_graphs(tmp_path / f"{user_once}", user_once=user_once)
                engine = build_engine(OrtCpuBackend(), model)
                engines[user_once] = stack.enter_context(closing(engine))
            binding = engines[user_once].bind()
            assert isinstance(binding, CutBinding)
            return stack.enter_context(closing(binding))

        yield make


def source_of(binding: CutBinding, view: StoreView) -> CutSource:
    return CutSource.open(binding._cut, view)


def run(stage: object, source: CutSource) -> NDArray[np.generic]:
    assert isinstance(stage, CutStage)
    stage.look_up(source)
    stage.enqueue()
    return stage.outputs()[0].copy()


def merged(
    binding: CutBinding, requests: Sequence[CutRequest], run_rows: int | None = None
) -> CutStage:
    """Stage requests one below the other."""
    parts = [(request.admitted(), request.rows) for request in requests]
    rows = sum(request.rows for request in requests)
    stage = stage_batch(binding, parts, AXES, run_rows or rows, None)
    assert isinstance(stage, CutStage)
    return stage


def answers(requests: Sequence[CutRequest], add: float = 0.0) -> NDArray[np.float32]:
    return np.concatenate([request.answer(add) for request in requests])


# --- stages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("user_once", [True, False])
@pytest.mark.parametrize(("rows", "one_user"), [(0, False), (1, False), (6, False), (6, True)])
def test_a_request_is_answered_as_by_plain_arithmetic(
    bind: Bind,
    writer: StoreWriter,
    rng: np.random.Generator,
    rows: int,
    one_user: bool,
    user_once: bool,
) -> None:
    binding = bind(user_once=user_once)
    source = source_of(binding, view_of_store(writer))
    for _ in range(3):  # backends bind outputs after the first run
        request = CutRequest.random(rng, rows, one_user=one_user)

        stage = stage_request(binding, request.admitted(), rows)

        np.testing.assert_array_equal(run(stage, source), request.answer())


def test_what_a_graph_takes_as_it_comes_lies_in_its_own_memory(
    bind: Bind, writer: StoreWriter, rng: np.random.Generator
) -> None:
    binding = bind()
    request = CutRequest.random(rng, 3)
    stage = stage_request(binding, request.admitted(), 3)
    assert isinstance(stage, CutStage)

    assert stage.inputs[X] is stage.dense.inputs[0]
    assert stage.user is not None
    assert stage.inputs[AGE] is stage.user.inputs[0]
    assert stage.index is stage.dense.inputs[3]
    run(stage, source_of(binding, view_of_store(writer)))
    looked_up = stage.dense.inputs[1]
    np.testing.assert_array_equal(looked_up, request.answer()[:, 1:7])


def test_users_of_merged_requests_are_computed_once(
    bind: Bind, writer: StoreWriter, rng: np.random.Generator
) -> None:
    binding = bind()
    source = source_of(binding, view_of_store(writer))
    for sizes in ((4, 3), (1, 1, 1), (5, 0, 2)):
        requests = [CutRequest.random(rng, rows, one_user=rows > 0) for rows in sizes]

        stage = merged(binding, requests)

        users = sum(1 for rows in sizes if rows)
        assert len(stage.inputs[USER]) == len(stage.inputs[AGE]) == users
        np.testing.assert_array_equal(run(stage, source), answers(requests))
    assert len(stage.inputs[USER]) == 2
    keys, _ = binding.counts()
    assert keys[2] == 2 + 3 + 2  # users that were looked up


def test_requests_with_a_user_for_each_row_meet_others_in_a_batch(
    bind: Bind, writer: StoreWriter, rng: np.random.Generator
) -> None:
    binding = bind()
    requests = [CutRequest.random(rng, 3, one_user=one) for one in (False, True, False)]

    stage = merged(binding, requests)

    assert len(stage.inputs[USER]) == 3 + 1 + 3
    assert stage.index is not None
    assert stage.index.tolist() == [0, 1, 2, 3, 3, 3, 4, 5, 6]
    found = run(stage, source_of(binding, view_of_store(writer)))
    np.testing.assert_array_equal(found, answers(requests))


@pytest.mark.parametrize("user_once", [True, False])
@pytest.mark.parametrize("sizes", [(0,), (2,), (2, 3), (0, 0)])
def test_rows_that_pad_a_batch_change_nothing(
    bind: Bind,
    writer: StoreWriter,
    rng: np.random.Generator,
    sizes: tuple[int, ...],
    user_once: bool,
) -> None:
    binding = bind(user_once=user_once)
    requests = [CutRequest.random(rng, rows, one_user=rows > 0) for rows in sizes]

    stage = merged(binding, requests, run_rows=8)

    found = run(stage, source_of(binding, view_of_store(writer)))
    assert len(found) == 8
    np.testing.assert_array_equal(found[: sum(sizes)], answers(requests))


@pytest.mark.parametrize("wrong", [ITEMS, -ITEMS - 1])
def test_an_id_outside_of_its_table_is_refused_and_the_stage_goes_on(
    bind: Bind, writer: StoreWriter, rng: np.random.Generator, wrong: int
) -> None:
    binding = bind()
    source = source_of(binding, view_of_store(writer))
    request = CutRequest.random(rng, 2)
    bad = CutRequest([(0, 1), (wrong, 2)], request.user, request.x, request.code, request.age)

    stage = stage_request(binding, bad.admitted(), 2)
    assert isinstance(stage, CutStage)
    with pytest.raises(InvalidInput, match=f"{wrong}"):
        stage.look_up(source)

    again = stage_request(binding, request.admitted(), 2)
    assert again is stage
    np.testing.assert_array_equal(run(again, source), request.answer())


def test_ids_below_zero_count_from_the_end_as_in_the_graph(bind: Bind, writer: StoreWriter) -> None:
    binding = bind()
    request = CutRequest([(-1, -ITEMS)], [USERS - 1], [1.0], [3], [30.0])

    stage = stage_request(binding, request.admitted(), 1)

    found = run(stage, source_of(binding, view_of_store(writer)))
    assert found[0, 1:5].tolist() == [ITEMS - 1, ITEMS - 0.5, 0, 0.5]


# --- stores that change ---------------------------------------------------------------------------


def test_a_stage_reads_whatever_store_it_is_given(
    bind: Bind, tmp_path: Path, writer: StoreWriter, rng: np.random.Generator
) -> None:
    binding = bind()
    first = source_of(binding, view_of_store(writer))
    other = source_of(binding, view_of_store(cut_store(tmp_path / "other", add=1000.0)))
    later = first.at(change_items(writer, 500.0))
    request = CutRequest.random(rng, 4)
    stage = stage_request(binding, request.admitted(), 4)
    assert later.plan is first.plan

    for source, add in ((first, 0.0), (other, 1000.0), (later, 500.0), (first, 0.0)):
        np.testing.assert_array_equal(run(stage, source), request.answer(add))

    assert binding.counts()[0].tolist() == [4 * 4 * 2, 4 * 4, 4 * 4]


def test_another_generation_has_its_own_plan(
    bind: Bind, tmp_path: Path, writer: StoreWriter
) -> None:
    source = source_of(bind(), view_of_store(writer))

    moved = source.at(view_of_store(cut_store(tmp_path / "other")))

    assert moved.plan is not source.plan
    assert moved.cut is source.cut


def test_a_store_with_other_tables_is_refused(
    bind: Bind, tmp_path: Path, writer: StoreWriter
) -> None:
    from anabranch_testing.looked_up import open_store

    source = source_of(bind(), view_of_store(writer))
    with pytest.raises(InvalidInput, match="table 'items' of the plan is not in the store"):
        source.at(view_of_store(open_store(tmp_path / "hashed")))


def test_what_was_counted_outlives_stages_and_bindings(
    bind: Bind, writer: StoreWriter, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_engines, "_STAGES", 2)
    binding = bind()
    lookups = ExecutorLookups()
    lookups.keep(1, binding)
    source = source_of(binding, view_of_store(writer))
    rows = (1, 2, 3, 4, 1, 2)
    for count in rows:
        request = CutRequest.random(rng, count)
        run(stage_request(binding, request.admitted(), count), source)

    assert len(binding._stages) == 2
    total = sum(rows)
    expected = {
        ("items", "items"): LookupCount(2 * total, 0),
        ("ab_ids_0", "items"): LookupCount(total, 0),
        ("user", "users"): LookupCount(total, 0),
    }
    assert lookups.counts() == expected
    lookups.let_go(id(source.plan))
    assert lookups.counts() == expected
    lookups.forget(1)
    assert lookups.counts() == expected


def test_a_plan_that_was_let_go_of_is_free(
    bind: Bind, writer: StoreWriter, rng: np.random.Generator
) -> None:
    binding = bind()
    source = source_of(binding, view_of_store(writer))
    request = CutRequest.random(rng, 2)
    stage = stage_request(binding, request.admitted(), 2)
    run(stage, source)
    plan = weakref.ref(source.plan)
    number, view = id(source.plan), source.view
    del source
    gc.collect()
    assert plan() is not None

    binding.let_go(number)
    gc.collect()

    assert plan() is None
    again = source_of(binding, view)
    np.testing.assert_array_equal(run(stage, again), request.answer())


def test_plans_are_let_go_of_beside_lookups_and_counts_never_fall(
    bind: Bind, tmp_path: Path, writer: StoreWriter, rng: np.random.Generator
) -> None:
    binding = bind()
    other = cut_store(tmp_path / "other", add=1000.0)
    request = CutRequest.random(rng, 1)
    stop = threading.Event()
    plans: list[int] = []
    faults: list[str] = []

    def tidy() -> None:
        last = 0
        while not stop.is_set():
            for plan in plans[-2:]:
                binding.let_go(plan)
            keys = int(binding.counts()[0].sum())
            if keys < last:
                faults.append(f"{keys} after {last}")
            last = keys

    thread = threading.Thread(target=tidy)
    thread.start()
    try:
        for turn in range(200):
            is_other = turn % 2 == 1
            source = source_of(binding, view_of_store(other if is_other else writer))
            plans.append(id(source.plan))
            stage = stage_request(binding, request.admitted(), 1)
            expected = request.answer(1000.0 if is_other else 0.0)
            np.testing.assert_array_equal(run(stage, source), expected)
    finally:
        stop.set()
        thread.join()

    assert faults == []
    assert int(binding.counts()[0].sum()) == 200 * 4


def test_a_stage_counts_what_was_looked_up_while_it_moves_to_another_plan(
    bind: Bind, tmp_path: Path, writer: StoreWriter, rng: np.random.Generator
) -> None:
    # Whoever reads the counters in the middle of that must not see fewer than before.
    binding = bind()
    request = CutRequest.random(rng, 3)
    stage = stage_request(binding, request.admitted(), 3)
    run(stage, source_of(binding, view_of_store(writer)))
    other = source_of(binding, view_of_store(cut_store(tmp_path / "other")))
    before = binding.counts()[0].tolist()
    seen: list[list[int]] = []

    class Watched:
        """A lock that looks at the counters just before and after it was held."""

        def __init__(self, inner: threading.Lock) -> None:
            self._inner = inner

        def __enter__(self) -> None:
            self._inner.__enter__()

        def __exit__(self, *_: object) -> None:
            self._inner.release()
            seen.append(binding.counts()[0].tolist())

    assert isinstance(stage, CutStage)
    stage._lock = Watched(binding._lock)  # type: ignore[assignment]
    run(stage, other)

    assert seen == [before]


# --- several executors ----------------------------------------------------------------------------


def test_executors_share_graphs_and_nothing_else(bind: Bind, writer: StoreWriter) -> None:
    bindings = [bind() for _ in range(4)]
    source = source_of(bindings[0], view_of_store(writer))
    faults: list[BaseException] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            for _ in range(60):
                sizes = rng.integers(0, 5, 3).tolist()
                requests = [CutRequest.random(rng, rows, one_user=rows > 0) for rows in sizes]
                found = run(merged(bindings[number], requests), source)
                np.testing.assert_array_equal(found, answers(requests))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert faults == []


def test_graphs_built_before_one_that_fails_are_closed(tmp_path: Path) -> None:
    model = cut_graphs(tmp_path)
    assert model.cut is not None
    assert model.cut.prelude is not None
    model.cut.prelude.path.write_bytes(b"no graph")
    closed: list[Path] = []

    class Watching(OrtCpuBackend):
        def build(
            self, model: DenseModel, cancellation: Cancellation | None = None
        ) -> OrtCpuEngine:
            engine = super().build(model, cancellation)
            weakref.finalize(engine, closed.append, model.path)
            return engine

    with pytest.raises(InvalidInput):
        build_engine(Watching(), model)
    gc.collect()

    assert closed == [model.cut.dense.path]


# --- session groups -------------------------------------------------------------------------------


def load(
    group: SessionGroup,
    folder: Path,
    view: StoreView,
    *,
    version: int = 1,
    rows: RowLayout | None = None,
    user_once: bool = True,
) -> ServedVersion:
    example = CutRequest.random(np.random.default_rng(1), 4)
    return group.load(
        Snapshot("m", version),
        cut_graphs(folder / f"v{version}", rows=rows, user_once=user_once),
        [example.named()],
        warm_rounds=2,
        user_inputs=USER_NAMES,
        store=view,
    )


def ticket_of(served: ServedVersion, sink: ReplySink, request: CutRequest) -> Ticket:
    inputs, rows = served.rules.order(request.named())
    return Ticket(ScoreRequest(inputs, rows, (), time.monotonic() + 30), served, sink)


def check(ticket: Ticket, request: CutRequest, add: float = 0.0) -> None:
    assert ticket.error is None
    assert ticket.outputs is not None
    np.testing.assert_array_equal(ticket.outputs[0], request.answer(add))


def met(
    group: SessionGroup, backend: GatedBackend, served: ServedVersion, requests: list[CutRequest]
) -> list[Ticket]:
    """Let requests wait behind another one, so that they meet, and return them finished."""
    sink = Collector()
    first = CutRequest.random(np.random.default_rng(2), 1)
    until_asleep(group)
    backend.hold()
    group.submit(ticket_of(served, sink, first))
    assert backend.entered.acquire(timeout=10)
    tickets = [ticket_of(served, sink, request) for request in requests]
    for ticket in tickets:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(len(requests) + 1)
    return tickets


@pytest.mark.parametrize("user_once", [True, False])
def test_requests_that_met_are_answered_as_if_alone(
    make_group: MakeGroup,
    backend: GatedBackend,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    user_once: bool,
) -> None:
    group = make_group(batching=BatchSettings(max_rows=64, split_rows=0))
    served = load(group, tmp_path, view_of_store(writer), user_once=user_once)
    requests = [
        CutRequest.random(rng, rows, one_user=rows > 0 and bool(rng.integers(2)))
        for rows in (3, 0, 5, 1, 4)
    ]

    tickets = met(group, backend, served, requests)

    assert counts.batches[-1] == (0, 13, 5)
    for ticket, request in zip(tickets, requests, strict=True):
        check(ticket, request)
        assert ticket.lookup_s > 0


@pytest.mark.parametrize("rows", [0, 3])
def test_a_request_alone_is_answered(
    make_group: MakeGroup,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
    rows: int,
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of_store(writer))
    sink = Collector()
    request = CutRequest.random(rng, rows, one_user=rows > 0)

    group.submit(ticket_of(served, sink, request))
    (done,) = sink.wait(1)

    check(done, request)


def test_only_the_request_with_the_wrong_id_fails(
    make_group: MakeGroup,
    backend: GatedBackend,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group(batching=BatchSettings(max_rows=64, split_rows=0))
    served = load(group, tmp_path, view_of_store(writer))
    requests = [CutRequest.random(rng, 2, one_user=True) for _ in range(5)]
    good = requests[2]
    requests[2] = CutRequest([(1, 2), (3, ITEMS + 5)], good.user, good.x, good.code, good.age)

    tickets = met(group, backend, served, requests)

    error = tickets[2].error
    assert isinstance(error, InvalidInput)
    assert "'items'" in error.message
    assert str(ITEMS + 5) in error.message
    for index in (0, 1, 3, 4):
        check(tickets[index], requests[index])


def test_a_large_request_is_cut_with_its_user(
    make_group: MakeGroup,
    counts: Counts,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group(2, BatchSettings(max_rows=16, split_rows=3))
    served = load(group, tmp_path, view_of_store(writer))
    sink = Collector()
    request = CutRequest.random(rng, 9, one_user=True)
    until_asleep(group)

    group.submit(ticket_of(served, sink, request))
    (done,) = sink.wait(1)

    assert sorted(rows for _, rows, _ in counts.batches) == [4, 5]
    check(done, request)


def test_models_that_pick_rows_bring_company(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    layout = RowLayout(True, 1, AXES, (0,), splittable=False)
    served = load(group, tmp_path, view_of_store(writer), rows=layout)
    assert served.company_rows == 4
    sink = Collector()
    requests = [CutRequest.random(rng, rows, one_user=True) for rows in (1, 3)]

    for request in requests:
        group.submit(ticket_of(served, sink, request))
        sink.wait(requests.index(request) + 1)

    for ticket, request in zip(sink.tickets, requests, strict=True):
        check(ticket, request)


def test_the_next_batch_sees_a_row_that_changed(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    old = load(group, tmp_path, view_of_store(writer))
    request = CutRequest.random(rng, 3)

    new = group.with_rows(old, change_items(writer, 500.0), Snapshot("m", 1, 1))

    sink = Collector()
    for number, (served, add) in enumerate(((old, 0.0), (new, 500.0), (old, 0.0)), 1):
        group.submit(ticket_of(served, sink, request))
        check(sink.wait(number)[-1], request, add)
    assert new.snapshot == Snapshot("m", 1, 1)
    assert new.token == old.token


def test_two_versions_side_by_side_read_their_own_rows(
    make_group: MakeGroup,
    backend: GatedBackend,
    writer: StoreWriter,
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    group = make_group(batching=BatchSettings(max_rows=64, split_rows=0))
    other = cut_store(tmp_path / "other", add=1000.0)
    one = load(group, tmp_path, view_of_store(writer), version=1)
    two = load(group, tmp_path, view_of_store(other), version=2)
    sink = Collector()
    backend.hold()
    requests = [CutRequest.random(rng, 2) for _ in range(8)]

    tickets = [
        ticket_of(two if number % 2 else one, sink, request)
        for number, request in enumerate(requests)
    ]
    for ticket in tickets:
        group.submit(ticket)
    backend.gate.set()
    sink.wait(8)

    for number, (ticket, request) in enumerate(zip(tickets, requests, strict=True)):
        check(ticket, request, 1000.0 if number % 2 else 0.0)


def test_an_unused_version_is_freed_and_its_counts_stay(
    make_group: MakeGroup, writer: StoreWriter, rng: np.random.Generator, tmp_path: Path
) -> None:
    group = make_group()
    served = load(group, tmp_path, view_of_store(writer))
    sink = Collector()
    request = CutRequest.random(rng, 3)
    group.submit(ticket_of(served, sink, request))
    sink.wait(1)
    until_asleep(group)
    counted = group.lookup_counts()
    assert served.source is not None
    plan = weakref.ref(served.source.plan)

    ticket = ticket_of(served, sink, request)
    del served
    sink.tickets.clear()
    assert group.free_unused() == 0  # the ticket has it
    group.submit(ticket)
    sink.wait(1)
    del ticket
    sink.tickets.clear()
    until_asleep(group)
    gc.collect()

    assert group.free_unused() == 1
    gc.collect()
    assert plan() is None
    added = group.lookup_counts()[("items", "items")].keys - counted[("items", "items")].keys
    assert added == 2 * 3


def test_a_cut_model_needs_a_store(make_group: MakeGroup, tmp_path: Path) -> None:
    group = make_group()
    with pytest.raises(ValueError, match="needs a store"):
        group.load(Snapshot("m", 1), cut_graphs(tmp_path), [])


def test_a_closed_group_takes_no_cut_model(writer: StoreWriter, tmp_path: Path) -> None:
    from anabranch_runtime.settings import GroupSettings

    group = SessionGroup("m", GroupSettings(executors=1), OrtCpuBackend(), Counts())
    assert group.close(10.0)
    with pytest.raises(Unavailable):
        load(group, tmp_path, view_of_store(writer))
